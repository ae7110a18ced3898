// The acceptance rules that compare drafted tokens with the target's choice or distribution: `exact` (greedy
// verification), `rejection` (speculative sampling, with or without a lenience) and `block` (block verification).
#pragma once

#include "infer/acceptance/acceptance_rule.h"
#include "infer/sampling/sampling.h"

namespace draftsmith::infer {

// ---- Greedy verification

// The acceptance `exact` of assisted generation: keeps the longest prefix of the draft that equals the target's most
// likely tokens, then adds the target's token. The output equals greedy decoding, token for token.
class ExactAcceptance : public AcceptanceRule {
 public:
  AcceptanceTraits traits() const override { return {.name = "exact", .greedy_only = true, .on_device = true}; }
  Judgement judge(const Verification& verification) override;
  // Judges in tensor operations, every position at once, as judge() does on other devices than the CPU.
  Judgement judge_tensors(const Verification& verification) const;
};

// ---- Speculative sampling
// Its decision is also taken in tensors, as one launch on a GPU (Leviathan et al., Algorithm 1).

// Keeps each row's leading tokens x with r < p(x)/q(x), and draws the token after them: from norm(max(0, p - q)) after
// a rejection, else from p.
Decided decide_by_rejection(const DraftedTokens& drafted);

// The acceptance `rejection` of speculative sampling (Leviathan et al., Algorithm 1): token x is kept with probability
// min(1, p(x)/q(x)); after the first rejection the target's token is drawn from norm(max(0, p - q)), after a full
// acceptance from p. The output is distributed as sampling from the warped p.
//
// With a lenience l < 1 (appendix A.5) q counts only l times: x is kept with probability min(1, p(x)/(l q(x))), and the
// residual is norm(max(0, p - l q)), so no token is put out with more than 1/l of its probability. Greedy decoding
// keeps x if p(x) >= l max p.
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
  double lenience_;
};

// ---- Block verification

// The acceptance `block` of block verification (Sun et al. 2024, arXiv 2403.10444, Algorithm 2): a draft is judged as a
// whole. p_i, the probability with which its first i tokens may stay, is min(1, p_{i-1} p(x_i)/q(x_i)), so that a token
// whose p exceeds q makes up for an earlier one. The longest prefix i with r_i < h_i is kept, where h_i is p_i at the
// draft's end and before it
//
//   h_i = E_i / (E_i + 1 - p_i),  E_i = sum_x max(0, p_i p(x) - q(x)).
//
// The target's token is drawn from norm(max(0, p_i p - q)) after the kept prefix, or from p after the whole draft. The
// output is distributed as sampling from the warped p, and no fewer tokens are kept on average than by `rejection`.
class BlockAcceptance : public AcceptanceRule {
 public:
  AcceptanceTraits traits() const override {
    return {.name = "block", .needs_distribution = true, .looks_ahead = true};
  }
  // Applies the exact rule at temperature 0, where p and q are one-hot.
  Judgement judge(const Verification& verification) override;
  // Judges at temperatures > 0 in tensor operations, as judge() does on other devices than the CPU.
  Judgement judge_tensors(const Verification& verification) const;
};

}  // namespace draftsmith::infer
