#include "evaluate/results/inside_summary.h"

#include <cmath>

#include "evaluate/theory/formulas.h"

namespace draftsmith::evaluate {
namespace {

double per(int64_t count, int64_t tokens) {
  return static_cast<double>(count) / static_cast<double>(tokens);
}

PpdSetting ppd_setting(const Setting& setting, const LayerDepth& depth, const infer::DecodeStats& stats) {
  const double rate = stats.match_rate();
  return {.layers = depth.layers,
          .early_layer = depth.early,
          .candidates = setting.decode.candidates,
          .match_rate = std::isfinite(rate) ? rate : 0};
}

// Returns Theorem 4.1 summed over the outputs: each has a token that nothing was predicted for.
PpdTheorem theorem_result(PpdSetting setting, int64_t tokens, int64_t outputs) {
  setting.match_rate *= per(tokens - outputs, tokens);
  const PpdCost cost = ppd_cost_per_token(setting);
  return {.latency_per_token = cost.latency,
          .compute_per_token = cost.compute,
          .units_in_use = cost.units_in_use(),
          .speedup = static_cast<double>(setting.layers) / cost.latency};
}

void add_ppd(const PpdSetting& setting, const infer::DecodeStats& stats, int64_t outputs, Inside& inside) {
  inside.early_layer = setting.early_layer;
  inside.candidates = setting.candidates;
  inside.match_rate = stats.match_rate();
  inside.early_predictions = stats.early_predictions;
  inside.compute_per_token = per(stats.compute_units, stats.emitted);
  inside.units_in_use = per(stats.compute_units, stats.latency_units);
  if (stats.early_predictions > 0) inside.theorem = theorem_result(setting, stats.emitted, outputs);
}

int64_t path(const Setting& setting, const infer::DecodeStats& stats) {
  return setting.algorithm() == infer::Algorithm::kCalm ? stats.layer_runs : stats.latency_units;
}

}  // namespace

std::optional<Inside> inside_result(const Setting& setting, const LayerDepth& depth, const infer::DecodeStats& stats,
                                    int64_t outputs) {
  const bool counted = stats.layer_runs > 0 && stats.emitted > 0 && depth.layers > 0;
  if (!counted || (depth.early == 0 && !setting.inside())) return std::nullopt;
  Inside inside;
  inside.layers = depth.layers;
  inside.layer_runs_per_token = per(stats.layer_runs, stats.emitted);
  inside.path_per_token = per(path(setting, stats), stats.emitted);
  if (setting.algorithm() == infer::Algorithm::kCalm) {
    inside.average_exit_layer = stats.average_exit_layer();
    inside.exit_histogram = stats.exits_by_layer;
  } else if (setting.algorithm() == infer::Algorithm::kPpd) {
    add_ppd(ppd_setting(setting, depth, stats), stats, outputs, inside);
  } else {
    inside.exit_layer = depth.early;
  }
  return inside;
}

}  // namespace draftsmith::evaluate
