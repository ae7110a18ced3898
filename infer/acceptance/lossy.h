// The acceptance rules that judge by other measures than rejection: `accept_all` of a Tandem that stands alone and
// `rollback` of BiLD. Neither keeps the target's distribution.
#pragma once

#include "base/registry.h"
#include "infer/acceptance/acceptance_rule.h"

namespace draftsmith::infer {

// ---- A Tandem that stands alone

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

// ---- BiLD
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

}  // namespace draftsmith::infer
