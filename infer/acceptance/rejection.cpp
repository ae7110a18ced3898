#include "infer/acceptance/rejection.h"

#include <vector>

#include <ATen/Dispatch.h>

#include "infer/row_kernels.h"

namespace draftsmith::infer {

namespace {

// max(0, p - q) after a rejection, p after a full acceptance or where p - q has no mass.
at::Tensor residual(const Verification& verification, const at::Tensor& p, const at::Tensor& q,
                    const at::Tensor& accepted) {
  const auto target = at_position(p, accepted);  // [B,V]
  const int64_t window = verification.tokens.size(1);
  if (window == 0) return target;
  const auto rejected = accepted.lt(verification.counts).unsqueeze(1);  // [B,1]
  const auto drafter = at_position(q, accepted.clamp_max(window - 1));  // [B,V]
  const auto rest = target.sub(drafter).clamp_min_(0);
  return at::where(rejected & rest.sum(1, true).gt(0), rest, target);
}

// One row on the CPU: position by position up to the first rejection, so that later ones cost nothing.
template <class T>
class RowJudge {
 public:
  explicit RowJudge(const Verification& verification)
      : verification_(verification),
        logits_(verification.logits.contiguous()),
        tokens_(verification.tokens.contiguous()),
        vocabulary_(logits_.size(2)),
        p_(static_cast<size_t>(vocabulary_)) {
    for (const at::Tensor& q : verification.probabilities) q_.push_back(q.to(logits_.scalar_type()).contiguous());
  }

  // Writes the row's accepted count and next token, and its overlaps when `overlaps` [G] is not null.
  void judge(int64_t b, int64_t* accepted, int64_t* next, double* overlaps) {
    const Row& row = verification_.rows[static_cast<size_t>(b)];
    const int64_t drafted = verification_.counts.const_data_ptr<int64_t>()[b];
    int64_t j = 0;
    warp_position(b, 0);
    for (; j < drafted; warp_position(b, ++j)) {
      const T* q = drafter(b, j);
      if (overlaps != nullptr) overlaps[j] = row_overlap(p_.data(), q, vocabulary_);
      const int64_t token = tokens_.const_data_ptr<int64_t>()[b * tokens_.size(1) + j];
      const double chance = row.random.uniform(Draw::kAccept, row.emitted() + j);
      // r < p/q without dividing; strict, so that p = 0 is never accepted.
      if (chance * static_cast<double>(q[token]) < static_cast<double>(p_[static_cast<size_t>(token)])) continue;
      if (row_residual(p_.data(), q, vocabulary_) <= 0) warp_position(b, j);
      break;
    }
    *accepted = j;
    *next = row_draw(p_.data(), vocabulary_, row.random.uniform(Draw::kNext, row.emitted() + j));
  }

 private:
  void warp_position(int64_t b, int64_t j) {
    const T* logits = logits_.const_data_ptr<T>() + (b * logits_.size(1) + j) * vocabulary_;
    row_warp(logits, vocabulary_, verification_.warping, p_.data());
  }
  const T* drafter(int64_t b, int64_t j) const {
    return q_[static_cast<size_t>(j)].template const_data_ptr<T>() + b * vocabulary_;
  }

  const Verification& verification_;
  at::Tensor logits_;  // [B,G+1,V]
  at::Tensor tokens_;  // [B,G]
  int64_t vocabulary_;
  std::vector<T> p_;           // [V] of the position at hand
  std::vector<at::Tensor> q_;  // G of [B,V]
};

Judgement judge_rows(const Verification& verification) {
  const int64_t rows = verification.tokens.size(0);
  const int64_t window = verification.tokens.size(1);
  Judgement judgement;
  judgement.accepted = at::zeros({rows}, at::kLong);
  judgement.next = at::zeros({rows}, at::kLong);
  if (verification.measure_overlap && window > 0) judgement.overlap = at::zeros({rows, window}, at::kDouble);
  AT_DISPATCH_FLOATING_TYPES(verification.logits.scalar_type(), "rejection", [&] {
    RowJudge<scalar_t> judge(verification);
    for (int64_t b = 0; b < rows; ++b) {
      if (verification.rows[static_cast<size_t>(b)].finished) continue;
      judge.judge(b, judgement.accepted.mutable_data_ptr<int64_t>() + b, judgement.next.mutable_data_ptr<int64_t>() + b,
                  judgement.overlap.defined() ? judgement.overlap.mutable_data_ptr<double>() + b * window : nullptr);
    }
  });
  return judgement;
}

}  // namespace

Judgement judge_tensors(const Verification& verification) {
  const int64_t window = verification.tokens.size(1);
  const auto device = verification.logits.device();
  const auto p = warp(verification.logits, verification.warping);                       // [B,G+1,V]
  const auto q = window > 0 ? at::stack(verification.probabilities, 1) : at::Tensor();  // [B,G,V]
  Judgement judgement;
  if (window == 0) {
    judgement.accepted = at::zeros_like(verification.counts);
  } else {
    const auto index = verification.tokens.unsqueeze(2);                           // [B,G,1]
    const auto p_token = p.narrow(1, 0, window).gather(2, index).squeeze(2);       // [B,G]
    const auto q_token = q.gather(2, index).squeeze(2);                            // [B,G]
    const auto r = uniforms(verification.rows, Draw::kAccept, 0, window, device);  // [B,G]
    // r < p/q without dividing; strict, so that p = 0 is never accepted.
    judgement.accepted = leading(r.mul(q_token).lt(p_token) & drafted_positions(verification));
  }
  const auto r_next = uniforms(verification.rows, Draw::kNext, 0, window + 1, device);  // [B,G+1]
  judgement.next = draw(residual(verification, p, q, judgement.accepted),
                        r_next.gather(1, judgement.accepted.unsqueeze(1)).squeeze(1));
  if (verification.measure_overlap && window > 0) judgement.overlap = overlap(p, q);
  return judgement;
}

Judgement RejectionAcceptance::judge(const Verification& verification) {
  if (verification.warping.greedy()) return exact_.judge(verification);
  const auto type = verification.logits.scalar_type();
  const bool by_rows = verification.logits.is_cpu() && (type == at::kFloat || type == at::kDouble);
  return by_rows ? judge_rows(verification) : judge_tensors(verification);
}

}  // namespace draftsmith::infer
