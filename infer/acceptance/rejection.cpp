#include "infer/acceptance/rejection.h"

#include <algorithm>

namespace draftsmith::infer {

namespace {

// Row [B,V] at `position` int64 [B] of values [B,P,V]: whole rows are copied, not single elements gathered.
at::Tensor at_position(const at::Tensor& values, const at::Tensor& position) {
  const int64_t positions = values.size(1);
  const auto first = at::arange(values.size(0), position.options()).mul_(positions);  // [B]
  return values.reshape({-1, values.size(2)}).index_select(0, first.add_(position));
}

// max(0, p - q) after a rejection, p after a full acceptance or where p - q has no mass.
at::Tensor residual(const Verification& verification, const at::Tensor& p, const at::Tensor& accepted) {
  const auto target = at_position(p, accepted);  // [B,V]
  const int64_t window = verification.tokens.size(1);
  if (window == 0) return target;
  const auto rejected = accepted.lt(verification.counts).unsqueeze(1);                           // [B,1]
  const auto drafter = at_position(verification.probabilities, accepted.clamp_max(window - 1));  // [B,V]
  const auto rest = target.sub(drafter).clamp_min_(0);
  return at::where(rejected & rest.sum(1, true).gt(0), rest, target);
}

}  // namespace

Judgement RejectionAcceptance::judge(const Verification& verification) {
  if (verification.warping.greedy()) return exact_.judge(verification);
  const int64_t window = verification.tokens.size(1);
  const auto device = verification.logits.device();
  const auto p = warp(verification.logits, verification.warping);  // [B,G+1,V]
  Judgement judgement;
  if (window == 0) {
    judgement.accepted = at::zeros_like(verification.counts);
  } else {
    const auto index = verification.tokens.unsqueeze(2);                           // [B,G,1]
    const auto p_token = p.narrow(1, 0, window).gather(2, index).squeeze(2);       // [B,G]
    const auto q_token = verification.probabilities.gather(2, index).squeeze(2);   // [B,G]
    const auto r = uniforms(verification.rows, Draw::kAccept, 0, window, device);  // [B,G]
    // r < p/q without dividing; strict, so that p = 0 is never accepted.
    judgement.accepted = leading(r.mul(q_token).lt(p_token) & drafted_positions(verification));
  }
  const auto r_next = uniforms(verification.rows, Draw::kNext, 0, window + 1, device);  // [B,G+1]
  judgement.next =
      draw(residual(verification, p, judgement.accepted), r_next.gather(1, judgement.accepted.unsqueeze(1)).squeeze(1));
  if (verification.measure_overlap && window > 0) judgement.overlap = overlap(p, verification.probabilities);
  return judgement;
}

}  // namespace draftsmith::infer
