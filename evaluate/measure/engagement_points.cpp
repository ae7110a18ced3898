#include "evaluate/measure/engagement_points.h"

#include <fmt/format.h>

namespace draftsmith::evaluate {
namespace {

using infer::EngagementPolicy;

std::vector<MeasuredEngagement> points_of(const EngagementTable& table) {
  std::vector<MeasuredEngagement> points;
  for (const double threshold : table.oracle) points.push_back({EngagementPolicy::kOracle, threshold});
  for (const double threshold : table.fallback) points.push_back({EngagementPolicy::kFallback, threshold});
  return points;
}

std::string name_of(const EngagementPrompts& curve, const MeasuredEngagement& point) {
  return measurement_name({"engagement", curve.key, curve.table.drafter, std::to_string(curve.prompts.size()),
                           std::to_string(curve.batch_size), infer::engagement_policies().name(point.policy),
                           fmt::format("{}", point.threshold)});
}

nlohmann::json to_json(const infer::EngagedOutputs& outputs) {
  nlohmann::json json{{"ids", outputs.ids}, {"tokens", outputs.tokens}, {"engaged", outputs.engaged}};
  if (outputs.changed) json["changed"] = *outputs.changed;
  return json;
}

infer::EngagedOutputs outputs_of(const nlohmann::json& json) {
  infer::EngagedOutputs outputs{.ids = json.at("ids"), .tokens = json.at("tokens"), .engaged = json.at("engaged")};
  if (json.contains("changed")) outputs.changed = json.at("changed").get<int64_t>();
  return outputs;
}

}  // namespace

std::vector<std::vector<MeasuredEngagement>> measure_engagement(const std::vector<EngagementPrompts>& curves,
                                                                Engine& engine, MeasurementStore& store,
                                                                const SuiteContext& context) {
  std::vector<Measurement> measurements;
  for (const EngagementPrompts& curve : curves) {
    for (const MeasuredEngagement& point : points_of(curve.table)) {
      const auto decode = [&curve, &engine, policy = point.policy, threshold = point.threshold] {
        return to_json(engine.engage(curve.table,
                                     {.policy = policy,
                                      .threshold = threshold,
                                      .max_new_tokens = curve.max_new_tokens,
                                      .batch_size = curve.batch_size},
                                     curve.prompts));
      };
      measurements.push_back({.name = name_of(curve, point), .measure = decode});
    }
  }
  measure_missing(measurements, store, context);
  std::vector<std::vector<MeasuredEngagement>> measured;
  for (const EngagementPrompts& curve : curves) {
    auto& points = measured.emplace_back(points_of(curve.table));
    for (MeasuredEngagement& point : points) point.outputs = outputs_of(store.at(name_of(curve, point)));
  }
  return measured;
}

}  // namespace draftsmith::evaluate
