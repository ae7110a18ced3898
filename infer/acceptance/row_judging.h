// Judgement of drafts on the CPU, row by row and position by position, so that positions behind the first rejected
// token cost nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/Dispatch.h>

#include "base/device_tensors.h"
#include "infer/acceptance/acceptance_rule.h"

namespace draftsmith::infer {

// A rule's judgement of one row.
struct RowJudgement {
  int64_t accepted = 0;
  int64_t next = 0;  // the target's token; kNoToken: its logits are not numbers
};

// A verification on the CPU as plain numbers of type T. The verification must outlive it.
template <class T>
class RowVerification {
 public:
  explicit RowVerification(const Verification& verification)
      : verification_(verification),
        logits_(verification.logits.contiguous()),
        tokens_(verification.tokens.contiguous()),
        counts_(verification.counts.contiguous()) {
    for (const at::Tensor& q : verification.probabilities) q_.push_back(q.to(logits_.scalar_type()).contiguous());
  }

  const Verification& whole() const { return verification_; }
  const Row& row(int64_t b) const { return verification_.rows[static_cast<size_t>(b)]; }
  int64_t vocabulary() const { return logits_.size(2); }
  int64_t drafted(int64_t b) const { return counts_.const_data_ptr<int64_t>()[b]; }
  int64_t token(int64_t b, int64_t j) const { return tokens_.const_data_ptr<int64_t>()[b * tokens_.size(1) + j]; }
  // Returns the target's logits, [V], for j up to drafted(b).
  const T* logits(int64_t b, int64_t j) const {
    return logits_.const_data_ptr<T>() + (b * logits_.size(1) + j) * vocabulary();
  }
  // Returns the drafter's warped probabilities, [V].
  const T* drafter(int64_t b, int64_t j) const {
    return q_[static_cast<size_t>(j)].template const_data_ptr<T>() + b * vocabulary();
  }

 private:
  const Verification& verification_;
  at::Tensor logits_;  // [B,G+1,V]
  at::Tensor tokens_;  // [B,G]
  at::Tensor counts_;  // [B]
  std::vector<at::Tensor> q_;
};

// Judges every row that is not finished with judge(rows, b, overlaps): RowVerification of the logits' type, the row's
// index and the place for its overlaps, [G], or null if they are not wanted.
template <class Judge>
Judgement judge_rows(const Verification& verification, bool overlap, const Judge& judge) {
  const int64_t rows = verification.tokens.size(0);
  const int64_t window = verification.tokens.size(1);
  Judgement judgement;
  judgement.accepted = host_empty({rows}, at::kLong);
  judgement.next = host_empty({rows}, at::kLong);
  if (overlap) {
    judgement.overlap = host_empty({rows, window}, at::kDouble);
    std::fill_n(judgement.overlap.template mutable_data_ptr<double>(), rows * window, 0.0);
  }
  AT_DISPATCH_FLOATING_TYPES(verification.logits.scalar_type(), "judge", [&] {
    const RowVerification<scalar_t> numbers(verification);
    for (int64_t b = 0; b < rows; ++b) {
      RowJudgement row;
      if (!numbers.row(b).finished) {
        row = judge(numbers, b, overlap ? judgement.overlap.template mutable_data_ptr<double>() + b * window : nullptr);
      }
      judgement.accepted.template mutable_data_ptr<int64_t>()[b] = row.accepted;
      judgement.next.template mutable_data_ptr<int64_t>()[b] = row.next;
    }
  });
  return judgement;
}

}  // namespace draftsmith::infer
