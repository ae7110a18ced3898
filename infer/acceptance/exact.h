// The acceptance `exact` of assisted generation: the longest prefix of the draft that equals the target's own most
// likely tokens, then the target's token. Greedy decoding, token for token.
#pragma once

#include "infer/acceptance/acceptance_rule.h"

namespace draftsmith::infer {

class ExactAcceptance : public AcceptanceRule {
 public:
  AcceptanceTraits traits() const override { return {.name = "exact", .greedy_only = true}; }
  Judgement judge(const Verification& verification) override;
  // The same in tensor operations, every position at once: what judge() does on devices other than the CPU.
  Judgement judge_tensors(const Verification& verification) const;
};

}  // namespace draftsmith::infer
