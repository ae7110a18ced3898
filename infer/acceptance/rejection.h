// The acceptance `rejection` of speculative sampling (Leviathan et al., Algorithm 1): token x is kept with probability
// min(1, p(x)/q(x)); after the first rejection the target's token is drawn from norm(max(0, p - q)), after a full
// acceptance from p. The output is distributed as sampling from the warped p.
//
// With a lenience l < 1 (appendix A.5) q counts only l times: x is kept with probability min(1, p(x)/(l q(x))), and the
// residual is norm(max(0, p - l q)), so no token is put out with more than 1/l of its probability. Greedy decoding
// keeps x if p(x) >= l max p.
#pragma once

#include "infer/acceptance/exact.h"

namespace draftsmith::infer {

class RejectionAcceptance : public AcceptanceRule {
 public:
  // `lenience` in (0, 1]; at 1 the rule is lossless.
  explicit RejectionAcceptance(double lenience = 1) : lenience_(lenience) {}
  AcceptanceTraits traits() const override {
    return {.name = "rejection", .lossless = lenience_ == 1, .needs_distribution = true, .on_device = true};
  }
  // Applies the exact rule at temperature 0 without lenience: p and q are one-hot.
  Judgement judge(const Verification& verification) override;
  // Judges at temperatures > 0 in tensor operations, every position at once, as judge() does on other devices than the
  // CPU.
  Judgement judge_tensors(const Verification& verification) const;

 private:
  Judgement judge_greedy(const Verification& verification);
  Judgement judge_greedy_tensors(const Verification& verification) const;

  double lenience_;
  ExactAcceptance exact_;
};

}  // namespace draftsmith::infer
