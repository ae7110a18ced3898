#include "evaluate/theory/prediction.h"

#include <algorithm>

#include "infer/parts.h"

namespace draftsmith::evaluate {

std::optional<Prediction> predict(const Setting& run, const infer::DecodeStats& stats, const infer::StepCosts& costs) {
  if (stats.drafted == 0 || stats.target_runs == 0 || costs.target.empty()) return std::nullopt;
  Prediction prediction;
  prediction.cost_ratio = costs.cost_ratio();
  const auto target_runs = static_cast<double>(stats.target_runs);
  const double mean_step = static_cast<double>(stats.target_tokens) / target_runs;
  const double mean_draft = static_cast<double>(stats.draft_runs) / target_runs;
  const double round = costs.drafting(mean_draft) / costs.target[0] + costs.relative_target(mean_step);
  const double time = target_runs * round;
  prediction.speedup_from_counts = static_cast<double>(stats.emitted) / time;
  const bool constant = run.decode.drafts() && infer::window_traits(run.decode).constant_length;
  if (constant && stats.overlap_count > 0) {
    const int64_t window = run.decode.fixed_window();
    const double alpha = std::clamp(stats.alpha(), 0.0, 1.0);  // a mean of fp32 sums may be a hair above 1
    prediction.speedup = walltime_improvement(alpha, window, costs);
    prediction.latency = specgame_latency(alpha, window, costs);
  }
  return prediction;
}

}  // namespace draftsmith::evaluate
