#include "infer/evaluation_prediction.h"

#include <algorithm>
#include <cmath>

namespace draftsmith::infer {
namespace {

constexpr int64_t kDefaultWindow = 5;  // DecodeOptions::window of a fixed window

}  // namespace

double StepCosts::relative_target(double tokens) const {
  if (target.size() < 2) return 1;
  const double position = std::max(tokens - 1, 0.0);
  const auto below = std::min(static_cast<size_t>(position), target.size() - 2);
  const double share = position - static_cast<double>(below);
  return (target[below] + share * (target[below + 1] - target[below])) / target[0];
}

double expected_tokens(double alpha, int64_t window) {
  if (alpha >= 1) return static_cast<double>(window + 1);
  return (1 - std::pow(alpha, static_cast<double>(window + 1))) / (1 - alpha);
}

std::optional<Prediction> predict(const RunSettings& run, const DecodeStats& stats, const StepCosts& costs) {
  if (stats.drafted == 0 || stats.target_runs == 0 || costs.target.empty()) return std::nullopt;
  Prediction prediction;
  prediction.cost_ratio = costs.cost_ratio();
  const auto target_runs = static_cast<double>(stats.target_runs);
  const double mean_step = 1 + static_cast<double>(stats.drafted) / target_runs;
  const double time =
      static_cast<double>(stats.draft_runs) * prediction.cost_ratio + target_runs * costs.relative_target(mean_step);
  prediction.speedup_from_counts = static_cast<double>(stats.emitted) / time;
  if (run.decode.window_rule_name() == "fixed" && stats.overlap_count > 0) {
    const int64_t window = run.decode.window.value_or(kDefaultWindow);
    const double drafting = static_cast<double>(window) * prediction.cost_ratio;
    prediction.speedup =
        expected_tokens(stats.alpha(), window) / (drafting + costs.relative_target(static_cast<double>(window + 1)));
  }
  return prediction;
}

}  // namespace draftsmith::infer
