#include "infer/inside_summary.h"

#include <algorithm>
#include <cmath>

namespace draftsmith::infer {
namespace {

using nlohmann::ordered_json;

ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

double per(int64_t count, int64_t tokens) {
  return static_cast<double>(count) / static_cast<double>(tokens);
}

// Theorem 4.1 summed over the outputs: each has a token that nothing was predicted for.
ordered_json theorem_json(const PpdSetting& setting, int64_t tokens, int64_t outputs) {
  const auto all = static_cast<double>(tokens);
  const auto ahead = static_cast<double>(setting.layers - setting.early_layer);
  const auto plain = static_cast<double>(setting.layers) * all;
  const double latency = plain - ahead * (all - static_cast<double>(outputs)) * setting.match_rate;
  const double compute = latency + static_cast<double>(setting.candidates) * ahead * all;
  return {{"latency_per_token", latency / all},
          {"compute_per_token", compute / all},
          {"units_in_use", compute / latency},
          {"speedup", plain / latency}};
}

void add_calm(const DecodeStats& stats, ordered_json& json) {
  json["average_exit_layer"] = number(stats.average_exit_layer());
  json["exit_histogram"] = stats.exits_by_layer;
}

void add_ppd(const PpdSetting& setting, const DecodeStats& stats, int64_t outputs, ordered_json& json) {
  json["early_layer"] = setting.early_layer;
  json["candidates"] = setting.candidates;
  json["match_rate"] = number(stats.match_rate());
  json["early_predictions"] = stats.early_predictions;
  json["compute_per_token"] = per(stats.compute_units, stats.emitted);
  json["units_in_use"] = number(per(stats.compute_units, stats.latency_units));
  if (stats.early_predictions > 0) json["theorem"] = theorem_json(setting, stats.emitted, outputs);
}

int64_t path(const RunSettings& run, const RunDepth& depth, const DecodeStats& stats) {
  if (run.method() == "calm") return stats.layer_runs;
  if (run.method() == "ppd") return stats.latency_units;
  return stats.draft_runs * depth.early + stats.target_runs * (depth.layers - depth.early);
}

}  // namespace

PpdSetting ppd_setting(const RunSettings& run, const RunDepth& depth, const DecodeStats& stats) {
  const double rate = stats.match_rate();
  return {.layers = depth.layers,
          .early_layer = depth.early,
          .candidates = run.decode.candidates,
          .match_rate = std::isfinite(rate) ? rate : 0};
}

ordered_json inside_json(const RunSettings& run, const RunDepth& depth, const DecodeStats& stats, int64_t outputs) {
  ordered_json json = ordered_json::object();
  const bool counted = stats.layer_runs > 0 && stats.emitted > 0 && depth.layers > 0;
  if (!counted || (depth.early == 0 && !run.inside())) return json;
  json["layers"] = depth.layers;
  json["layer_runs_per_token"] = per(stats.layer_runs, stats.emitted);
  json["path_per_token"] = per(path(run, depth, stats), stats.emitted);
  if (run.method() == "calm") {
    add_calm(stats, json);
  } else if (run.method() == "ppd") {
    add_ppd(ppd_setting(run, depth, stats), stats, outputs, json);
  } else {
    json["exit_layer"] = depth.early;
  }
  return json;
}

}  // namespace draftsmith::infer
