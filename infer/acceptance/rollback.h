// The acceptance `rollback` of BiLD (Kim et al., Algorithm 1 and §3.4): the target's own token replaces the first
// drafted token y with -log p(y) > alpha_RB, where p is the target's distribution after processors, at temperature
// 1. (The authors' program takes it before processors.) If there is none, the target adds the next token.
//
// Algorithm 1 stops once the last token is EOS, whoever wrote it. So a draft that ends with EOS, or at the length
// limit, is output without a run of the target unless `verify_end` is set.
#pragma once

#include "base/registry.h"
#include "infer/acceptance/row_verification.h"

namespace draftsmith::infer {

enum class RollbackRule {
  kEffective,  // greedy decoding never rolls back a token that is the target's own choice
  kLiteral,    // as in the paper: a token of low probability is rolled back even if the target would choose it
  // As in the authors' program. The target writes the first token. Greedy decoding keeps the whole draft if the first
  // distant token is the target's own choice, whatever follows. After a rollback, which replaces the token from the
  // logits at hand, the target runs once more and writes the next token too. The authors' program goes on after a
  // replacement that is EOS; here the text ends.
  kReleasedCode,
};

// Returns their names in options.
const NamedValues<RollbackRule>& rollback_rules();

class RollbackAcceptance : public AcceptanceRule {
 public:
  RollbackAcceptance(double threshold, RollbackRule rule, bool verify_end = false)
      : threshold_(threshold), rule_(rule), verify_end_(verify_end) {}
  AcceptanceTraits traits() const override;
  Judgement judge(const Verification& verification) override;
  // Judges in tensor operations, every position at once, as judge() does on other devices than the CPU.
  Judgement judge_tensors(const Verification& verification) const;

 private:
  template <class T>
  RowJudgement judge_row(const RowVerification<T>& in, int64_t b, double* overlaps) const;
  double threshold_;
  RollbackRule rule_;
  bool verify_end_;
};

}  // namespace draftsmith::infer
