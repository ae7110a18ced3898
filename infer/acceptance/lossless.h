// The acceptance rules that keep the target's distribution: `exact` (greedy verification), `rejection` (speculative
// sampling, unless it has a lenience) and `block` (block verification). On the CPU drafts are judged row by row and
// position by position, so that positions behind the first rejected token cost nothing.
#pragma once

#include <algorithm>
#include <vector>

#include <ATen/Dispatch.h>

#include "base/device_tensors.h"
#include "infer/acceptance/acceptance_rule.h"
#include "infer/sampling/sampling.h"

namespace draftsmith::infer {

// ---- Judgement by rows

// Returns whether a verification is judged by rows, instead of in tensor operations.
inline bool judged_by_rows(const Verification& verification) {
  const auto type = verification.logits.scalar_type();
  return verification.logits.is_cpu() && (type == at::kFloat || type == at::kDouble);
}

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

// ---- Greedy verification

// The acceptance `exact` of assisted generation: keeps the longest prefix of the draft that equals the target's most
// likely tokens, then adds the target's token. The output equals greedy decoding, token for token.
class ExactAcceptance : public AcceptanceRule {
 public:
  AcceptanceTraits traits() const override { return {.name = "exact", .greedy_only = true, .on_device = true}; }
  Judgement judge(const Verification& verification) override;
  // Judges in tensor operations, every position at once, as judge() does on other devices than the CPU.
  Judgement judge_tensors(const Verification& verification) const;
};

// ---- Speculative sampling
// Its decision is also taken in tensors, as one launch on a GPU (Leviathan et al., Algorithm 1).

// Keeps each row's leading tokens x with r < p(x)/q(x), and draws the token after them: from norm(max(0, p - q)) after
// a rejection, else from p.
Decided decide_by_rejection(const DraftedTokens& drafted);

// The acceptance `rejection` of speculative sampling (Leviathan et al., Algorithm 1): token x is kept with probability
// min(1, p(x)/q(x)); after the first rejection the target's token is drawn from norm(max(0, p - q)), after a full
// acceptance from p. The output is distributed as sampling from the warped p.
//
// With a lenience l < 1 (appendix A.5) q counts only l times: x is kept with probability min(1, p(x)/(l q(x))), and the
// residual is norm(max(0, p - l q)), so no token is put out with more than 1/l of its probability. Greedy decoding
// keeps x if p(x) >= l max p.
class RejectionAcceptance : public AcceptanceRule {
 public:
  // `lenience` in (0, 1]; at 1 the rule is lossless.
  explicit RejectionAcceptance(double lenience = 1) : lenience_(lenience) {}
  AcceptanceTraits traits() const override {
    return {.name = "rejection", .lossless = lenience_ == 1, .needs_distribution = true, .on_device = true};
  }
  // Applies the exact rule at temperature 0 without lenience: p and q are one-hot.
  Judgement judge(const Verification& verification) override;
  // Judges at temperatures > 0 in tensor operations, every position at once, as judge() does on other devices than the
  // CPU.
  Judgement judge_tensors(const Verification& verification) const;

 private:
  Judgement judge_greedy(const Verification& verification);
  Judgement judge_greedy_tensors(const Verification& verification) const;

  double lenience_;
  ExactAcceptance exact_;
};

// ---- Block verification

// The acceptance `block` of block verification (Sun et al. 2024, arXiv 2403.10444, Algorithm 2): a draft is judged as a
// whole. p_i, the probability with which its first i tokens may stay, is min(1, p_{i-1} p(x_i)/q(x_i)), so that a token
// whose p exceeds q makes up for an earlier one. The longest prefix i with r_i < h_i is kept, where h_i is p_i at the
// draft's end and before it
//
//   h_i = E_i / (E_i + 1 - p_i),  E_i = sum_x max(0, p_i p(x) - q(x)).
//
// The target's token is drawn from norm(max(0, p_i p - q)) after the kept prefix, or from p after the whole draft. The
// output is distributed as sampling from the warped p, and no fewer tokens are kept on average than by `rejection`.
class BlockAcceptance : public AcceptanceRule {
 public:
  AcceptanceTraits traits() const override {
    return {.name = "block", .needs_distribution = true, .looks_ahead = true};
  }
  // Applies the exact rule at temperature 0, where p and q are one-hot.
  Judgement judge(const Verification& verification) override;
  // Judges at temperatures > 0 in tensor operations, as judge() does on other devices than the CPU.
  Judgement judge_tensors(const Verification& verification) const;

 private:
  ExactAcceptance exact_;
};

}  // namespace draftsmith::infer
