// An oracle of acceptance: drafted tokens are kept by the throw of a coin, so that the acceptance rate is known
// exactly.
#pragma once

#include <memory>

#include "infer/acceptance/acceptance_rule.h"

namespace draftsmith::bench {

// Runs another rule, whose work is part of what is timed, and replaces the number of tokens that it kept: each drafted
// token is kept with probability `alpha` if all before it are. The text means nothing; its speed is that of a drafter
// whose tokens are accepted independently at this rate, as the theory assumes (Leviathan et al. 2023).
class CoinAcceptance final : public infer::AcceptanceRule {
 public:
  CoinAcceptance(std::unique_ptr<infer::AcceptanceRule> rule, double alpha) : rule_(std::move(rule)), alpha_(alpha) {}

  infer::AcceptanceTraits traits() const override { return rule_->traits(); }

  infer::Judgement judge(const infer::Verification& verification) override {
    infer::Judgement judgement = rule_->judge(verification);
    const at::Tensor kept =
        at::rand(verification.tokens.sizes(), verification.tokens.options().dtype(at::kFloat)).lt(alpha_);  // [B,G]
    judgement.accepted = infer::leading(kept & infer::drafted_positions(verification));
    return judgement;
  }

 private:
  std::unique_ptr<infer::AcceptanceRule> rule_;
  double alpha_;
};

}  // namespace draftsmith::bench
