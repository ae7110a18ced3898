// The acceptance `rollback` of BiLD (Kim et al., Algorithm 1 and §3.4): the target's own token replaces the first
// drafted token y with -log p(y) > alpha_RB, where p is the target's unwarped distribution. If there is none, the
// target adds the next token.
#pragma once

#include "base/registry.h"
#include "infer/acceptance/row_verification.h"

namespace draftsmith::infer {

enum class RollbackRule {
  kEffective,  // greedy decoding never rolls back a token that is the target's own choice
  kLiteral,    // as in the paper: a token of low probability is rolled back even if the target would choose it
  // As in the authors' program: the target writes the first token, and a rollback takes one more run of the target
  // instead of using the logits at hand.
  kReleasedCode,
};

// Returns their names in options.
const NamedValues<RollbackRule>& rollback_rules();

class RollbackAcceptance : public AcceptanceRule {
 public:
  RollbackAcceptance(double threshold, RollbackRule rule) : threshold_(threshold), rule_(rule) {}
  AcceptanceTraits traits() const override;
  Judgement judge(const Verification& verification) override;
  // Judges in tensor operations, every position at once, as judge() does on other devices than the CPU.
  Judgement judge_tensors(const Verification& verification) const;

 private:
  template <class T>
  RowJudgement judge_row(const RowVerification<T>& in, int64_t b, double* overlaps) const;
  double threshold_;
  RollbackRule rule_;
};

}  // namespace draftsmith::infer
