#include "infer/acceptance/acceptance_rule.h"

namespace draftsmith::infer {

PackedJudgement pack(const Judgement& judgement, const at::Tensor& tokens) {
  std::vector<at::Tensor> columns = {judgement.accepted.unsqueeze(1), judgement.next.unsqueeze(1)};
  if (tokens.defined()) columns.push_back(tokens);
  if (judgement.overlap.defined()) columns.push_back(judgement.overlap.view(at::kLong));
  return {at::cat(columns, 1), tokens.defined() ? tokens.size(1) : 0, judgement.overlap.defined()};
}

Judgement PackedJudgement::judgement_of(const at::Tensor& host) const {
  Judgement judgement{.accepted = host.select(1, 0), .next = host.select(1, 1)};
  if (overlap) judgement.overlap = host.narrow(1, 2 + tokens, host.size(1) - 2 - tokens).view(at::kDouble);
  return judgement;
}

at::Tensor drafted_positions(const Verification& verification) {
  const auto positions = at::arange(verification.tokens.size(1), verification.tokens.options());  // [G]
  return positions.unsqueeze(0).lt(verification.counts.unsqueeze(1));
}

at::Tensor uniforms_of(const Verification& verification, Draw use, int64_t count) {
  if (verification.on_device != nullptr) return row_uniforms(*verification.on_device, use, 0, count);
  return uniforms(verification.rows, use, 0, count, verification.logits.device());
}

at::Tensor target_token(const Verification& verification, const at::Tensor& at) {
  const auto logits = at_position(verification.logits, at);  // [B,V]
  if (verification.warping.greedy()) return most_likely(logits);
  const auto numbers = uniforms_of(verification, Draw::kNext, verification.tokens.size(1) + 1);  // [B,G+1]
  return draw(warp(logits, verification.warping), numbers.gather(1, at.unsqueeze(1)).squeeze(1));
}

at::Tensor overlap(const at::Tensor& p, const at::Tensor& q) {
  return at::minimum(p.narrow(1, 0, q.size(1)), q).sum(-1, false, at::kDouble);
}

Judgement judge_greedy_tensors(const Verification& verification, double slack) {
  const int64_t window = verification.tokens.size(1);
  const auto choice = most_likely(verification.logits);  // [B,G+1]
  const auto own = choice.narrow(1, 0, window);          // [B,G]
  const auto same = own.eq(verification.tokens);         // [B,G]
  auto kept = same;
  if (slack >= 0) {
    const auto heads = verification.logits.narrow(1, 0, window);  // [B,G,V]
    const auto logit = [&](const at::Tensor& ids) {
      return heads.gather(2, ids.clamp_min(0).unsqueeze(2)).squeeze(2).to(at::kDouble);
    };
    kept = logit(verification.tokens).ge(logit(own).sub(slack)) & own.ne(kNoToken);
  }
  Judgement judgement;
  judgement.accepted = leading(kept & drafted_positions(verification));
  judgement.next = choice.gather(1, judgement.accepted.unsqueeze(1)).squeeze(1);
  judgement.overlap = same.to(at::kDouble);  // one-hot distributions overlap fully or not at all
  return judgement;
}

}  // namespace draftsmith::infer
