// The acceptance `exact` of assisted generation: keeps the longest prefix of the draft that equals the target's most
// likely tokens, then adds the target's token. The output equals greedy decoding, token for token.
#pragma once

#include "infer/acceptance/acceptance_rule.h"

namespace draftsmith::infer {

class ExactAcceptance : public AcceptanceRule {
 public:
  AcceptanceTraits traits() const override { return {.name = "exact", .greedy_only = true, .on_device = true}; }
  Judgement judge(const Verification& verification) override;
  // Judges in tensor operations, every position at once, as judge() does on other devices than the CPU.
  Judgement judge_tensors(const Verification& verification) const;
};

}  // namespace draftsmith::infer
