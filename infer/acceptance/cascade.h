// The acceptance `cascade` of speculative cascades (Narasimhan et al., arXiv 2405.19261): speculative sampling whose
// target distribution pi is the drafter's q where the drafter may be trusted, and the model's p where it defers. So
// unlike `rejection` it keeps a draft that the two models write differently but equally well.
//
//   deferral   defers where                       pi
//   chow       max q < 1 - alpha                  p if it defers, else q
//   diff       max q < max p - alpha              likewise
//   opt        max q < max p - alpha TV(p, q)     likewise: the plug-in estimate of the paper's optimal rule
//   token      p(x) < (1 - alpha) max p, token x  q(x) [x is trusted] + p(x) (q's mass of tokens that are not)
//
// A token x is kept with probability min(1, pi(x)/q(x)); after the first rejection the next token is drawn from
// norm(max(0, pi - q)). After a whole draft it is drawn from p, since no q is at hand there. Greedy decoding takes p
// and q at temperature 1 for the deferral: a trusted token is kept, another one only if it is the target's own choice.
#pragma once

#include "base/registry.h"
#include "infer/acceptance/row_verification.h"

namespace draftsmith::infer {

enum class Deferral { kChow, kDiff, kOpt, kToken };

// Returns their names in options.
const NamedValues<Deferral>& deferrals();

class CascadeAcceptance : public AcceptanceRule {
 public:
  CascadeAcceptance(Deferral deferral, double alpha) : deferral_(deferral), alpha_(alpha) {}
  AcceptanceTraits traits() const override {
    return {.name = "cascade", .lossless = false, .needs_distribution = true, .needs_confidence = true};
  }
  Judgement judge(const Verification& verification) override;

 private:
  template <class T>
  RowJudgement judge_row(const RowVerification<T>& in, int64_t b, double* overlaps) const;
  template <class T>
  RowJudgement judge_greedy_row(const RowVerification<T>& in, int64_t b, double* overlaps) const;

  Deferral deferral_;
  double alpha_;
};

}  // namespace draftsmith::infer
