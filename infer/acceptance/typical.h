// The acceptance `typical` of Medusa (Cai et al. 2024, §2.3.3): a drafted token x stays if the target finds it likely
// enough for how sure it is, p(x) > min(epsilon, delta e^-H), H the entropy of p at the sampling temperature before
// truncation. After the first token that does not stay, and after a whole draft, the target draws from p. The output
// keeps typical tokens, but is not distributed as p; at temperature 0 it is the target's own.
#pragma once

#include "infer/acceptance/exact.h"

namespace draftsmith::infer {

class TypicalAcceptance : public AcceptanceRule {
 public:
  TypicalAcceptance(double epsilon, double delta) : epsilon_(epsilon), delta_(delta) {}
  AcceptanceTraits traits() const override { return {.name = "typical", .lossless = false}; }
  Judgement judge(const Verification& verification) override;
  // Judges at temperatures > 0 in tensor operations, as judge() does on other devices than the CPU.
  Judgement judge_tensors(const Verification& verification) const;

 private:
  double epsilon_, delta_;
  ExactAcceptance exact_;
};

}  // namespace draftsmith::infer
