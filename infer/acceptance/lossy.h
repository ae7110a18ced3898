// The acceptance rules that do not keep the target's distribution: `accept_all` of a Tandem that stands alone,
// `cascade` of speculative cascades, `rollback` of BiLD and `typical` of Medusa.
#pragma once

#include "base/registry.h"
#include "infer/acceptance/acceptance_rule.h"
#include "infer/acceptance/lossless.h"

namespace draftsmith::infer {

// ---- A Tandem that stands alone

// The acceptance `accept_all` of a Tandem secondary that stands alone (methods.md §1, "Standalone"): every drafted
// token is kept. The target reads finished blocks to supply representations. With the free token it also writes the
// first token and one after each block (Nair et al. 2024, figures 2 and 4); without, it computes no logits.
class AcceptAll : public AcceptanceRule {
 public:
  explicit AcceptAll(bool free_token) : free_token_(free_token) {}
  AcceptanceTraits traits() const override;
  // Returns the free token after an empty draft. Blocks themselves are never judged.
  Judgement judge(const Verification& verification) override;

 private:
  bool free_token_;
};

// ---- Speculative cascades
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

// ---- Typical acceptance

// The acceptance `typical` of Medusa (Cai et al. 2024, §2.3.3): a drafted token x stays if the target finds it likely
// enough for how sure it is, p(x) > min(epsilon, delta e^-H), H the entropy of p at the sampling temperature before
// truncation. After the first token that does not stay, and after a whole draft, the target draws from p. The output
// keeps typical tokens, but is not distributed as p; at temperature 0 it is the target's own.
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
