// The answers of a router while tokens are drafted, for the window `router`: keeps the history of each row that the
// router reads.
#pragma once

#include <vector>

#include "infer/windows/draft_history.h"
#include "infer/windows/window_rule.h"
#include "model/kinds/router.h"

namespace draftsmith::infer {

class RoutedDrafts {
 public:
  // The predictor must outlive this.
  explicit RoutedDrafts(const model::RouterPredictor& router);

  // Returns the predicted acceptance, 1 - P(disagreement), of each row's token that was just drafted: fp64 [B] on the
  // CPU, else fp32 [B] on the logits' device. Rows that the step does not ask about have any number. Called once for
  // each token of a draft.
  at::Tensor acceptance(const DraftStep& step);

  // As in WindowRule.
  void begin(std::span<const Row> rows);
  void observe(int64_t row, const WindowOutcome& outcome);
  void select_rows(std::span<const int64_t> rows);

 private:
  struct RowDraft {
    DraftHistory history;
    int64_t drafted = 0;  // tokens of this draft that were asked about
  };

  DraftHistory::Context next_context(size_t row);
  at::Tensor contexts_on(at::Device device);

  const model::RouterPredictor& router_;
  std::vector<RowDraft> rows_;        // [B]
  std::vector<float> probabilities_;  // [k] of one row
  std::vector<int64_t> ids_;          // [k] of one row
};

}  // namespace draftsmith::infer
