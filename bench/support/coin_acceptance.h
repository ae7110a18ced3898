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
  // `coins`: numbers for rows that only the device knows, fp64 [B,N,3] as DeviceRows::uniforms; greedy decoding has
  // none there. Other rows have their own.
  CoinAcceptance(std::unique_ptr<infer::AcceptanceRule> rule, double alpha, at::Tensor coins)
      : rule_(std::move(rule)), alpha_(alpha), coins_(std::move(coins)) {}

  infer::AcceptanceTraits traits() const override { return rule_->traits(); }

  infer::Judgement judge(const infer::Verification& verification) override {
    infer::Judgement judgement = rule_->judge(verification);
    const at::Tensor kept = numbers(verification).lt(alpha_);  // [B,G]
    judgement.accepted = infer::leading(kept & infer::drafted_positions(verification));
    return judgement;
  }

 private:
  at::Tensor numbers(const infer::Verification& verification) const {
    const int64_t window = verification.tokens.size(1);
    if (verification.on_device == nullptr) return infer::uniforms_of(verification, infer::Draw::kAccept, window);
    infer::DeviceRows rows = *verification.on_device;
    rows.uniforms = coins_;
    return infer::row_uniforms(rows, infer::Draw::kAccept, 0, window);
  }

  std::unique_ptr<infer::AcceptanceRule> rule_;
  double alpha_;
  at::Tensor coins_;
};

}  // namespace draftsmith::bench
