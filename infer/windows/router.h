// The window `router` (Tandem Transformers, §3): after each drafted token, which stays, a trained router predicts from
// the drafter's distribution whether the target will disagree; drafting ends when the predicted acceptance
// 1 - P(disagreement) falls below a threshold, or at `max_draft` tokens. Decided after the token is kept, so sampling
// stays lossless whatever the router says.
#pragma once

#include <vector>

#include "infer/windows/window_rule.h"
#include "model/kinds/router.h"

namespace draftsmith::infer {

class RouterWindow : public WindowRule {
 public:
  // The predictor must outlive the rule.
  RouterWindow(const model::RouterPredictor& router, double threshold, int64_t max_draft);
  WindowTraits traits() const override;
  int64_t maximum() const override { return max_draft_; }
  void begin(std::span<const Row>) override {}
  int64_t length(int64_t) const override { return max_draft_; }
  at::Tensor go_on(const DraftStep& step) override;
  void observe(int64_t, int64_t, int64_t) override {}
  void select_rows(std::span<const int64_t>) override {}

 private:
  const model::RouterPredictor& router_;
  double threshold_;
  int64_t max_draft_;
  std::vector<float> probabilities_;  // [k] of the row at hand
  std::vector<int64_t> ids_;          // [k]
};

}  // namespace draftsmith::infer
