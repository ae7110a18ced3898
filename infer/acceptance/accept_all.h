// The acceptance `accept_all` of a Tandem secondary that stands alone (methods.md §1, "Standalone"): every drafted
// token is kept. The target reads finished blocks to supply representations. With the free token it also writes the
// first token and one after each block (Nair et al. 2024, figures 2 and 4); without, it computes no logits.
#pragma once

#include "infer/acceptance/acceptance_rule.h"

namespace draftsmith::infer {

class AcceptAll : public AcceptanceRule {
 public:
  explicit AcceptAll(bool free_token) : free_token_(free_token) {}
  AcceptanceTraits traits() const override;
  // Returns the free token after an empty draft. Blocks themselves are never judged.
  Judgement judge(const Verification& verification) override;

 private:
  bool free_token_;
};

}  // namespace draftsmith::infer
