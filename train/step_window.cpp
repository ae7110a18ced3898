#include "train/step_window.h"

#include <algorithm>
#include <limits>

namespace draftsmith::train {

void add_to_window(TrainingState& state, const StepResult& result, double clip_norm, double seconds) {
  state.seconds += seconds;
  state.window_seconds += seconds;
  if (result.nonfinite) return;
  state.window_loss += result.loss_sum;
  state.window_labels += result.labels;
  state.window_divisor += result.divisor;
  ++state.window_updates;
  if (is_clipped(result, clip_norm)) ++state.window_clipped;
  state.window_largest_norm = std::max(state.window_largest_norm, result.gradient_norm);
}

StepMetrics window_metrics(const TrainingState& state, double lr, double gradient_norm) {
  const auto labels = static_cast<double>(std::max<int64_t>(1, state.window_labels));
  const auto divisor = static_cast<double>(std::max<int64_t>(1, state.window_divisor));
  const auto updates = static_cast<double>(std::max<int64_t>(1, state.window_updates));
  const bool all_skipped = state.window_updates == 0 && state.skipped_in_a_row > 0;
  return {.step = state.step,
          .epochs = state.epochs,
          .labels = state.labels,
          .loss = all_skipped ? std::numeric_limits<double>::quiet_NaN() : state.window_loss / divisor,
          .lr = lr,
          .gradient_norm = gradient_norm,
          .largest_norm = state.window_largest_norm,
          .clipped = static_cast<double>(state.window_clipped) / updates,
          .skipped = state.skipped,
          .labels_per_second = labels / std::max(state.window_seconds, 1e-9),
          .seconds = state.seconds};
}

void clear_window(TrainingState& state) {
  state.window_loss = state.window_seconds = state.window_largest_norm = 0;
  state.window_labels = state.window_divisor = state.window_updates = state.window_clipped = 0;
}

}  // namespace draftsmith::train
