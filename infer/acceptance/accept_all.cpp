#include "infer/acceptance/accept_all.h"

namespace draftsmith::infer {

AcceptanceTraits AcceptAll::traits() const {
  return {.name = "accept_all",
          .lossless = false,
          .first_from_target = free_token_,
          .target = free_token_ ? TargetRole::kAddsToken : TargetRole::kReads};
}

Judgement AcceptAll::judge(const Verification& verification) {
  return {.accepted = verification.counts,
          .next = target_token(verification, verification.counts),
          .rolled_back = {},
          .overlap = {}};
}

}  // namespace draftsmith::infer
