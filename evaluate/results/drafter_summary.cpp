#include "evaluate/results/drafter_summary.h"

#include <algorithm>
#include <map>

#include "evaluate/suite/names.h"

namespace draftsmith::evaluate {
namespace {

PredictionResult model_prediction(const infer::PredictionQuality& quality) {
  return {
      .accuracy = quality.accuracy, .cross_entropy = quality.cross_entropy, .relative_accuracy = {}, .relative_tv = {}};
}

// Returns the value of that name, added at the end if it is missing.
template <class T>
T& entry(Named<T>& values, const std::string& name) {
  const auto found = std::find_if(values.begin(), values.end(), [&](const auto& one) { return one.first == name; });
  return found == values.end() ? values.emplace_back(name, T{}).second : found->second;
}

}  // namespace

PredictionResult drafter_prediction(const ForcedAlphas& predicted) {
  PredictionResult result = model_prediction(predicted.drafter);
  result.relative_accuracy = predicted.at_temperature_0;
  result.relative_tv = 1 - predicted.at_temperature_1;
  return result;
}

TaskPrediction task_prediction(const MeasuredTask& measured) {
  std::map<std::string, infer::PredictionQuality> decoders;
  for (const auto& [name, predicted] : measured.predicted) {
    decoders.emplace(measured.drafted_for.at(name), predicted.target);
  }
  TaskPrediction result;
  result.texts = measured.data.references.empty() ? "continuations" : "references";
  result.lines = static_cast<int64_t>(measured.forced_texts.outputs.size());
  result.positions = measured.predicted.begin()->second.positions;
  if (decoders.contains(kTargetName)) entry(result.models, kTargetName);  // the first one
  for (const auto& [name, quality] : decoders) entry(result.models, name) = model_prediction(quality);
  for (const auto& [name, predicted] : measured.predicted) entry(result.models, name) = drafter_prediction(predicted);
  return result;
}

Named<DrafterResult> drafter_results(const MeasuredTask& measured) {
  Named<DrafterResult> drafters;
  for (const auto& [name, costs] : measured.costs) {
    DrafterResult& drafter = entry(drafters, name);
    drafter.cost_ratio = costs.cost_ratio();
    drafter.draft_step_seconds = costs.draft;
    drafter.target_step_seconds = costs.target;
  }
  for (const auto& [name, alpha] : measured.forced) {
    const ForcedAlphas& sampled = measured.forced_sampled.at(name);
    entry(drafters, name).alpha_forced = {.temperature_0 = alpha.at_temperature_0,
                                          .temperature_1 = sampled.at_temperature_1,
                                          .positions = alpha.positions,
                                          .sampled_positions = sampled.positions};
  }
  return drafters;
}

}  // namespace draftsmith::evaluate
