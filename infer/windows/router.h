// The window `router` (Tandem Transformers, §3): after each drafted token a trained router predicts from the drafter's
// distribution, and from the text's history, whether the target will disagree. Drafting ends once the predicted
// acceptance 1 - P(disagreement) is below a threshold, or at `max_draft` tokens. The token just drafted stays, so
// sampling stays lossless.
#pragma once

#include "infer/windows/routed_drafts.h"
#include "infer/windows/row_answers.h"
#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

class RouterWindow : public BoundedWindow {
 public:
  // The predictor must outlive the rule.
  RouterWindow(const model::RouterPredictor& router, double threshold, int64_t max_draft)
      : BoundedWindow(max_draft), drafts_(router), threshold_(threshold) {}
  static WindowTraits kind() { return {.name = "router", .decides = Decides::kAfterToken, .asks_router = true}; }
  WindowTraits traits() const override { return kind(); }
  void begin(std::span<const Row> rows) override { drafts_.begin(rows); }
  at::Tensor go_on(const DraftStep& step) override {
    const at::Tensor accepted = drafts_.acceptance(step);  // [B]
    if (!accepted.is_cpu()) return accepted.ge(threshold_);
    return row_answers(accepted, [this](double value) { return value >= threshold_; });
  }
  void observe(int64_t row, const WindowOutcome& outcome) override { drafts_.observe(row, outcome); }
  void select_rows(std::span<const int64_t> rows) override { drafts_.select_rows(rows); }

 private:
  RoutedDrafts drafts_;
  double threshold_;
};

}  // namespace draftsmith::infer
