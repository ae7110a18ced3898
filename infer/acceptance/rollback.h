// The acceptance `rollback` of BiLD (Kim et al., Algorithm 1 and §3.4): the first drafted token y with
// -log p(y) > alpha_RB, p the target's unwarped distribution, is replaced by the target's own; without one the target
// adds the next token.
#pragma once

#include "infer/acceptance/row_verification.h"

namespace draftsmith::infer {

// Effective: under greedy decoding a token that is the target's own choice is not rolled back, later ones are examined.
// Literal: it is, as in the paper. Released code: as the authors' program, where the target writes the first token and
// a rollback takes one more run of the target instead of using the logits at hand.
enum class RollbackRule { kEffective, kLiteral, kReleasedCode };

class RollbackAcceptance : public AcceptanceRule {
 public:
  RollbackAcceptance(double threshold, RollbackRule rule) : threshold_(threshold), rule_(rule) {}
  AcceptanceTraits traits() const override;
  Judgement judge(const Verification& verification) override;
  // The same in tensor operations, every position at once: what judge() does on devices other than the CPU.
  Judgement judge_tensors(const Verification& verification) const;

 private:
  template <class T>
  RowJudgement judge_row(const RowVerification<T>& in, int64_t b, double* overlaps) const;
  double threshold_;
  RollbackRule rule_;
};

}  // namespace draftsmith::infer
