#include "evaluate/results/inside_summary.h"

#include <cmath>

#include "base/json.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

double per(int64_t count, int64_t tokens) {
  return static_cast<double>(count) / static_cast<double>(tokens);
}

// Theorem 4.1 summed over the outputs: each has a token that nothing was predicted for.
ordered_json theorem_json(PpdSetting setting, int64_t tokens, int64_t outputs) {
  setting.match_rate *= per(tokens - outputs, tokens);
  const PpdCost cost = ppd_cost_per_token(setting);
  return {{"latency_per_token", cost.latency},
          {"compute_per_token", cost.compute},
          {"units_in_use", cost.units_in_use()},
          {"speedup", static_cast<double>(setting.layers) / cost.latency}};
}

void add_calm(const infer::DecodeStats& stats, ordered_json& json) {
  json["average_exit_layer"] = finite_or_null(stats.average_exit_layer());
  json["exit_histogram"] = stats.exits_by_layer;
}

void add_ppd(const PpdSetting& setting, const infer::DecodeStats& stats, int64_t outputs, ordered_json& json) {
  json["early_layer"] = setting.early_layer;
  json["candidates"] = setting.candidates;
  json["match_rate"] = finite_or_null(stats.match_rate());
  json["early_predictions"] = stats.early_predictions;
  json["compute_per_token"] = per(stats.compute_units, stats.emitted);
  json["units_in_use"] = finite_or_null(per(stats.compute_units, stats.latency_units));
  if (stats.early_predictions > 0) json["theorem"] = theorem_json(setting, stats.emitted, outputs);
}

int64_t path(const Setting& run, const infer::DecodeStats& stats) {
  return run.method() == "calm" ? stats.layer_runs : stats.latency_units;
}

}  // namespace

PpdSetting ppd_setting(const Setting& run, const LayerDepth& depth, const infer::DecodeStats& stats) {
  const double rate = stats.match_rate();
  return {.layers = depth.layers,
          .early_layer = depth.early,
          .candidates = run.decode.candidates,
          .match_rate = std::isfinite(rate) ? rate : 0};
}

ordered_json inside_json(const Setting& run, const LayerDepth& depth, const infer::DecodeStats& stats,
                         int64_t outputs) {
  ordered_json json = ordered_json::object();
  const bool counted = stats.layer_runs > 0 && stats.emitted > 0 && depth.layers > 0;
  if (!counted || (depth.early == 0 && !run.inside())) return json;
  json["layers"] = depth.layers;
  json["layer_runs_per_token"] = per(stats.layer_runs, stats.emitted);
  json["path_per_token"] = per(path(run, stats), stats.emitted);
  if (run.method() == "calm") {
    add_calm(stats, json);
  } else if (run.method() == "ppd") {
    add_ppd(ppd_setting(run, depth, stats), stats, outputs, json);
  } else {
    json["exit_layer"] = depth.early;
  }
  return json;
}

}  // namespace draftsmith::evaluate
