#include "infer/acceptance/rollback.h"

namespace draftsmith::infer {

AcceptanceTraits RollbackAcceptance::traits() const {
  return {.name = "rollback", .lossless = false, .first_from_target = rule_ == RollbackRule::kReleasedCode};
}

Judgement RollbackAcceptance::judge(const Verification& verification) {
  const int64_t window = verification.tokens.size(1);
  const bool greedy = verification.warping.greedy();
  const auto drafted = drafted_positions(verification);                                   // [B,G]
  const auto heads = verification.logits.narrow(1, 0, window);                            // [B,G,V]
  auto distant = token_log_probability(heads, verification.tokens).neg().gt(threshold_);  // [B,G]
  Judgement judgement;
  if (greedy) {
    const auto own = most_likely(heads).eq(verification.tokens);
    judgement.overlap = own.to(at::kDouble);
    if (rule_ == RollbackRule::kEffective) distant = distant & own.logical_not();
  } else if (verification.measure_overlap && window > 0) {
    judgement.overlap = overlap(warp(heads, verification.warping), at::stack(verification.probabilities, 1));
  }
  judgement.accepted = leading(drafted & distant.logical_not());
  judgement.rolled_back = judgement.accepted.lt(verification.counts);
  judgement.next = target_token(verification, judgement.accepted);
  if (rule_ == RollbackRule::kReleasedCode) judgement.next.masked_fill_(judgement.rolled_back, -1);
  return judgement;
}

}  // namespace draftsmith::infer
