#include "infer/windows/routed_drafts.h"

#include <algorithm>

#include <ATen/Dispatch.h>

#include "base/device_tensors.h"
#include "infer/sampling/draft_features.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

RoutedDrafts::RoutedDrafts(const model::RouterPredictor& router)
    : router_(router), probabilities_(static_cast<size_t>(router.config().top_k)), ids_(probabilities_.size()) {}

void RoutedDrafts::begin(std::span<const Row> rows) {
  rows_.clear();
  for (const Row& row : rows) rows_.push_back({.history = DraftHistory(std::ssize(row.input()))});
}

void RoutedDrafts::observe(int64_t row, const WindowOutcome& outcome) {
  RowDraft& draft = rows_[static_cast<size_t>(row)];
  draft.history.observe(outcome);
  draft.drafted = 0;
}

void RoutedDrafts::select_rows(std::span<const int64_t> rows) {
  keep_rows(rows_, rows);
}

DraftHistory::Context RoutedDrafts::next_context(size_t row) {
  return rows_[row].history.context(rows_[row].drafted++);
}

// Returns fp32 [B,C].
at::Tensor RoutedDrafts::contexts_on(at::Device device) {
  at::Tensor contexts = host_empty({std::ssize(rows_), model::kRouterContext}, at::kFloat);
  auto* values = contexts.mutable_data_ptr<float>();
  for (size_t b = 0; b < rows_.size(); ++b) {
    const DraftHistory::Context context = next_context(b);
    values = std::copy(context.begin(), context.end(), values);
  }
  return contexts.to(device);
}

at::Tensor RoutedDrafts::acceptance(const DraftStep& step) {
  if (!step.logits.is_cpu()) {
    model::RouterFeatures features = router_features(step.logits, router_.config().top_k);
    features.context = contexts_on(step.logits.device());
    return 1 - router_.disagreement(features);
  }
  const at::Tensor logits = promoted(step.logits).contiguous();  // [B,V]
  at::Tensor accepted = host_empty({logits.size(0)}, at::kDouble);
  auto* values = accepted.mutable_data_ptr<double>();
  AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "routed_drafts", [&] {
    for (int64_t b = 0; b < logits.size(0); ++b) {
      values[b] = 0;
      if (!step.asks(b)) continue;
      const double entropy = router_features(logits.const_data_ptr<scalar_t>() + b * logits.size(1), logits.size(1),
                                             std::span(probabilities_), std::span(ids_));
      const DraftHistory::Context context = next_context(static_cast<size_t>(b));
      values[b] = 1 - router_.disagreement(entropy, probabilities_, ids_, context);
    }
  });
  return accepted;
}

}  // namespace draftsmith::infer
