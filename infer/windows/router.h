// The window `router` (Tandem Transformers, §3): after each drafted token a trained router predicts from the drafter's
// distribution whether the target will disagree. Drafting ends once the predicted acceptance 1 - P(disagreement) is
// below a threshold, or at `max_draft` tokens. The token just drafted stays, so sampling stays lossless.
#pragma once

#include <vector>

#include "infer/windows/window_rule.h"
#include "model/kinds/router.h"

namespace draftsmith::infer {

class RouterWindow : public BoundedWindow {
 public:
  // The predictor must outlive the rule.
  RouterWindow(const model::RouterPredictor& router, double threshold, int64_t max_draft);
  static WindowTraits kind() { return {.name = "router", .decides = Decides::kAfterToken, .asks_router = true}; }
  WindowTraits traits() const override { return kind(); }
  at::Tensor go_on(const DraftStep& step) override;

 private:
  const model::RouterPredictor& router_;
  double threshold_;
  std::vector<float> probabilities_;  // [k] of one row
  std::vector<int64_t> ids_;          // [k] of one row
};

}  // namespace draftsmith::infer
