// The acceptance `block` of block verification (Sun et al. 2024, arXiv 2403.10444, Algorithm 2): a draft is judged as a
// whole. p_i, the probability with which its first i tokens may stay, is min(1, p_{i-1} p(x_i)/q(x_i)), so that a token
// whose p exceeds q makes up for an earlier one. The longest prefix i with r_i < h_i is kept, where h_i is p_i at the
// draft's end and before it
//
//   h_i = E_i / (E_i + 1 - p_i),  E_i = sum_x max(0, p_i p(x) - q(x)).
//
// The target's token is drawn from norm(max(0, p_i p - q)) after the kept prefix, or from p after the whole draft. The
// output is distributed as sampling from the warped p, and no fewer tokens are kept on average than by `rejection`.
#pragma once

#include "infer/acceptance/exact.h"

namespace draftsmith::infer {

class BlockAcceptance : public AcceptanceRule {
 public:
  AcceptanceTraits traits() const override {
    return {.name = "block", .needs_distribution = true, .looks_ahead = true};
  }
  // Applies the exact rule at temperature 0, where p and q are one-hot.
  Judgement judge(const Verification& verification) override;
  // Judges at temperatures > 0 in tensor operations, as judge() does on other devices than the CPU.
  Judgement judge_tensors(const Verification& verification) const;

 private:
  ExactAcceptance exact_;
};

}  // namespace draftsmith::infer
