#include "infer/acceptance/acceptance_rule.h"

namespace draftsmith::infer {

namespace {

at::Tensor uniforms_after(const Verification& verification, const at::Tensor& accepted) {
  const int64_t window = verification.tokens.size(1);
  const auto all = uniforms(verification.rows, Draw::kNext, 0, window + 1, verification.logits.device());  // [B,G+1]
  return all.gather(1, accepted.unsqueeze(1)).squeeze(1);
}

}  // namespace

at::Tensor drafted_positions(const Verification& verification) {
  const auto positions = at::arange(verification.tokens.size(1), verification.tokens.options());  // [G]
  return positions.unsqueeze(0).lt(verification.counts.unsqueeze(1));
}

at::Tensor leading(const at::Tensor& kept) {
  return kept.to(at::kLong).cumprod(1).sum(1);
}

at::Tensor target_token(const Verification& verification, const at::Tensor& at) {
  const auto index = at.view({-1, 1, 1}).expand({-1, 1, verification.logits.size(2)});
  const auto logits = verification.logits.gather(1, index).squeeze(1);  // [B,V]
  if (verification.warping.greedy()) return most_likely(logits);
  return draw(warp(logits, verification.warping), uniforms_after(verification, at));
}

at::Tensor overlap(const at::Tensor& p, const at::Tensor& q) {
  return at::minimum(p.narrow(1, 0, q.size(1)), q).sum(-1, false, at::kDouble);
}

}  // namespace draftsmith::infer
