// The window `survival` (SpecDec++, Huang et al. 2024, arXiv 2405.19715, §3.2): drafting ends once the predicted
// probability that at least one token of the draft is rejected exceeds a limit h,
//
//   1 - a_1 a_2 ... a_k > h,   a_i = P(token i is accepted | the tokens before it are),
//
// or at `max_draft` tokens. The paper shows that a limit of this form is the best policy of a Markov decision process
// whose costs are drafted tokens in vain and runs of the target. Its a_i come from a head on the drafter's hidden
// states; here a router gives them (model/kinds/router.h), whose positions are collected as just that conditional
// probability. The window `router` judges each a_k by itself. The token just drafted stays, so sampling stays lossless.
// NaN ends the draft.
#pragma once

#include <vector>

#include "infer/windows/router.h"

namespace draftsmith::infer {

class SurvivalWindow : public RoutedWindow {
 public:
  // `max_risk` is h, in [0,1].
  SurvivalWindow(const model::RouterPredictor& router, double max_risk, int64_t max_draft)
      : RoutedWindow(router, max_draft), max_risk_(max_risk) {}
  static WindowTraits kind() { return {.name = "survival", .decides = Decides::kAfterToken, .asks_router = true}; }
  WindowTraits traits() const override { return kind(); }
  void begin(std::span<const Row> rows) override;
  at::Tensor go_on(const DraftStep& step) override;
  void observe(int64_t row, const WindowOutcome& outcome) override;
  void select_rows(std::span<const int64_t> rows) override;

 private:
  double max_risk_;
  std::vector<double> survival_;  // [B] a_1 ... a_k of each row's draft so far
};

}  // namespace draftsmith::infer
