// The acceptance `rejection` of speculative sampling (Leviathan et al., Algorithm 1): token x is kept with probability
// min(1, p(x)/q(x)); after the first rejection the target's token is drawn from norm(max(0, p - q)), after a full
// acceptance from p. The output is distributed as sampling from the warped p.
#pragma once

#include "infer/acceptance/exact.h"

namespace draftsmith::infer {

class RejectionAcceptance : public AcceptanceRule {
 public:
  AcceptanceTraits traits() const override { return {.name = "rejection", .needs_distribution = true}; }
  // At temperature 0 p and q are one-hot: the exact rule.
  Judgement judge(const Verification& verification) override;
  // The judgement at temperatures > 0 in tensor operations, every position at once: what judge() does on devices other
  // than the CPU.
  Judgement judge_tensors(const Verification& verification) const;

 private:
  ExactAcceptance exact_;
};

}  // namespace draftsmith::infer
