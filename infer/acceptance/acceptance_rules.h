// Acceptance rules. Those that compare drafted tokens with the target's choice or distribution: `exact` (greedy
// verification), `rejection` (speculative sampling, with or without a lenience) and `block` (block verification). Those
// that judge otherwise and do not keep the target's distribution: `accept_all` of a Tandem that stands alone and
// `rollback` of BiLD.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/registry.h"
#include "infer/acceptance/acceptance_rule.h"

namespace draftsmith::infer {

struct DecodeOptions;  // infer/decode_options.h

// The acceptance `exact` of assisted generation: keeps the longest prefix of the draft that equals the target's most
// likely tokens, then adds the target's token. The output equals greedy decoding, token for token.
class ExactAcceptance : public AcceptanceRule {
 public:
  AcceptanceTraits traits() const override { return {.name = "exact", .greedy_only = true, .on_device = true}; }
  Judgement judge(const Verification& verification) override;
};

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
  // Judges at temperatures > 0 by tensor operations, all positions at once, as judge() does on other devices than CPUs.
  Judgement judge_tensors(const Verification& verification) const;

 private:
  double lenience_;
};

// The acceptance `block` of block verification (Sun et al. 2024, arXiv 2403.10444, Algorithm 2): a draft is judged as a
// whole. p_i, the probability with which its first i tokens may stay, is min(1, p_{i-1} p(x_i)/q(x_i)), so that a token
// whose p exceeds q makes up for an earlier one. The longest prefix i with r_i < h_i is kept, where h_i is p_i at the
// draft's end and before it h_i = E_i / (E_i + 1 - p_i) with E_i = sum_x max(0, p_i p(x) - q(x)).
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

// The acceptance `accept_all` of a Tandem secondary that stands alone (methods.md §1, "Standalone"): every drafted
// token is kept. The target reads finished blocks to supply representations. With the free token it also writes the
// first token and one after each block (Nair et al. 2024, figures 2 and 4); without, it computes no logits.
class AcceptAll : public AcceptanceRule {
 public:
  explicit AcceptAll(bool free_token) : free_token_(free_token) {}
  AcceptanceTraits traits() const override {
    return {
        .name = "accept_all", .lossless = false, .target = free_token_ ? TargetRole::kAddsToken : TargetRole::kReads};
  }
  // Returns the free token after an empty draft. Blocks themselves are never judged.
  Judgement judge(const Verification& verification) override {
    return {.accepted = verification.counts, .next = target_token(verification, verification.counts)};
  }

 private:
  bool free_token_;
};

// The acceptance `rollback` of BiLD (Kim et al., Algorithm 1 and §3.4): the target's own token replaces the first
// drafted token y with -log p(y) > alpha_RB, where p is the target's distribution after processors, at temperature
// 1. (The authors' program takes it before processors.) If there is none, the target adds the next token.
//
// Algorithm 1 stops once the last token is EOS, whoever wrote it. So a draft that ends with EOS, or at the length
// limit, is output without a run of the target unless `verify_end` is set.

enum class RollbackRule {
  kEffective,  // greedy decoding never rolls back a token that is the target's own choice
  kLiteral,    // as in the paper: a token of low probability is rolled back even if the target would choose it
};

// Returns their names in options.
const NamedValues<RollbackRule>& rollback_rules();

class RollbackAcceptance : public AcceptanceRule {
 public:
  RollbackAcceptance(double threshold, RollbackRule rule, bool verify_end = false)
      : threshold_(threshold), rule_(rule), verify_end_(verify_end) {}
  AcceptanceTraits traits() const override {
    return {.name = "rollback", .lossless = false, .verifies_end = verify_end_, .rolls_back = true};
  }
  Judgement judge(const Verification& verification) override;
  // Judges in tensor operations, every position at once, as judge() does on other devices than the CPU.
  Judgement judge_tensors(const Verification& verification) const;

 private:
  double threshold_;
  RollbackRule rule_;
  bool verify_end_;
};

std::vector<std::string> acceptance_rule_names();

// Returns the properties of the options' rule. Errors: UserError for an unknown name.
AcceptanceTraits acceptance_traits(const DecodeOptions& options);

// Makes the options' rule. Errors: UserError for an unknown name.
std::unique_ptr<AcceptanceRule> make_acceptance_rule(const DecodeOptions& options);

}  // namespace draftsmith::infer
