#include "evaluate/results/drafter_summary.h"

#include "base/json.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

ordered_json quality_json(const infer::PredictionQuality& quality) {
  return {{"accuracy", finite_or_null(quality.accuracy)}, {"cross_entropy", finite_or_null(quality.cross_entropy)}};
}

}  // namespace

ordered_json drafter_quality_json(const ForcedAlphas& predicted) {
  ordered_json json = quality_json(predicted.drafter);
  json["relative_accuracy"] = predicted.at_temperature_0;
  json["relative_tv"] = 1 - predicted.at_temperature_1;
  return json;
}

ordered_json prediction_json(const MeasuredTask& measured) {
  std::map<std::string, infer::PredictionQuality> decoders;
  for (const auto& [name, predicted] : measured.predicted) {
    decoders.emplace(measured.drafted_for.at(name), predicted.target);
  }
  ordered_json models = ordered_json::object();
  if (decoders.contains("target")) models["target"] = quality_json(decoders.at("target"));
  for (const auto& [name, quality] : decoders) models[name] = quality_json(quality);
  for (const auto& [name, predicted] : measured.predicted) models[name] = drafter_quality_json(predicted);
  const char* texts = measured.data.references.empty() ? "continuations" : "references";
  return {{"texts", texts},
          {"lines", measured.forced_texts.outputs.size()},
          {"positions", measured.predicted.begin()->second.positions},
          {"models", models}};
}

ordered_json drafters_json(const MeasuredTask& measured) {
  ordered_json json = ordered_json::object();
  for (const auto& [name, costs] : measured.costs) {
    auto& entry = json[name];
    entry["cost_ratio"] = costs.cost_ratio();
    entry["draft_step_seconds"] = costs.draft;
    entry["target_step_seconds"] = costs.target;
  }
  for (const auto& [name, alpha] : measured.forced) {
    json[name]["alpha_forced"] = {{"temperature_0", alpha.at_temperature_0},
                                  {"temperature_1", alpha.at_temperature_1},
                                  {"positions", alpha.positions}};
  }
  return json;
}

}  // namespace draftsmith::evaluate
