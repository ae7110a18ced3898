#include "infer/loop/stats_json.h"

#include <nlohmann/json.hpp>

namespace draftsmith::infer {

using nlohmann::ordered_json;

ordered_json stats_json(const DecodeStats& stats, bool with_alpha) {
  const auto& seconds = stats.seconds;
  ordered_json json{{"target_runs", stats.target_runs},
                    {"draft_runs", stats.draft_runs},
                    {"drafted", stats.drafted},
                    {"accepted", stats.accepted},
                    {"accepted_histogram", stats.accepted_histogram},
                    {"fallbacks", stats.fallbacks},
                    {"rollbacks", stats.rollbacks},
                    {"seconds",
                     {{"encode", seconds.encode},
                      {"prefill", seconds.prefill},
                      {"draft", seconds.draft},
                      {"verify", seconds.verify},
                      {"other", seconds.other}}}};
  if (stats.unverified > 0) json["unverified"] = stats.unverified;
  if (stats.layer_runs > 0) json["layer_runs"] = stats.layer_runs;
  if (!stats.exits_by_layer.empty()) json["exits_by_layer"] = stats.exits_by_layer;
  if (stats.latency_units > 0) json["latency_units"] = stats.latency_units;
  if (stats.compute_units > 0) {
    json["compute_units"] = stats.compute_units;
    json["early_predictions"] = stats.early_predictions;
    json["early_matches"] = stats.early_matches;
  }
  if (with_alpha && stats.overlap_count > 0) json["alpha"] = stats.alpha();
  return json;
}

}  // namespace draftsmith::infer
