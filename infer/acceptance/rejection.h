// The acceptance `rejection` of speculative sampling (Leviathan et al., Algorithm 1): token x is kept with probability
// min(1, p(x)/q(x)); after the first rejection the target's token is drawn from norm(max(0, p - q)), after a full
// acceptance from p. The output is distributed as sampling from the warped p.
#pragma once

#include "infer/acceptance/exact.h"

namespace draftsmith::infer {

class RejectionAcceptance : public AcceptanceRule {
 public:
  AcceptanceTraits traits() const override {
    return {.name = "rejection", .needs_distribution = true, .on_device = true};
  }
  // Applies the exact rule at temperature 0, where p and q are one-hot.
  Judgement judge(const Verification& verification) override;
  // Judges at temperatures > 0 in tensor operations, every position at once, as judge() does on other devices than the
  // CPU.
  Judgement judge_tensors(const Verification& verification) const;

 private:
  ExactAcceptance exact_;
};

}  // namespace draftsmith::infer
