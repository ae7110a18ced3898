// The acceptance `accept_all` of a Tandem secondary that stands alone (methods.md §1, "Standalone"): every drafted
// token is kept. The target reads finished blocks to supply representations; with the free token it also writes a token
// after each block, and the first of all (Nair et al. 2024, figures 2 and 4), without it no logits of it are computed.
#pragma once

#include "infer/acceptance/acceptance_rule.h"

namespace draftsmith::infer {

class AcceptAll : public AcceptanceRule {
 public:
  explicit AcceptAll(bool free_token) : free_token_(free_token) {}
  AcceptanceTraits traits() const override;
  // The free token, after an empty draft: the blocks themselves are never judged.
  Judgement judge(const Verification& verification) override;

 private:
  bool free_token_;
};

}  // namespace draftsmith::infer
