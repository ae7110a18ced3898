#include "evaluate/measure/forced_alphas.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/json.h"
#include "evaluate/measure/timing.h"

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

namespace {

using Outputs = std::vector<std::vector<int64_t>>;

int64_t forced_lines(const MeasuredTask& task, const SuiteOptions& options) {
  return std::min(options.forced_lines, task.data.lines());
}

std::string sample_name(const MeasuredTask& task, const std::string& model, int64_t first_line) {
  return measurement_name({"samples", task.key, model, std::to_string(first_line)});
}

std::string samples_owner(const MeasuredTask& task, const std::string& model) {
  return fmt::format("sampling by {} on {}", model, task.task->name);
}

std::string forced_owner(const MeasuredTask& task, const Setting& setting) {
  return fmt::format("drafter {} on {}", setting.drafter_label(), task.task->name);
}

std::string forced_name(const MeasuredTask& task, const Setting& setting, const char* texts) {
  return measurement_name({"forced", task.key, setting.drafter_label(), texts});
}

Outputs greedy_outputs(const MeasuredTask& task, const Setting& setting, int64_t lines) {
  Outputs outputs;
  for (int64_t line = 0; line < lines; ++line) {
    outputs.push_back(task.own_greedy(setting)[static_cast<size_t>(line)].ids);
  }
  return outputs;
}

Outputs sampled_outputs(const MeasuredTask& task, const Setting& setting, const SuiteOptions& options,
                        const MeasurementStore& store) {
  Outputs outputs;
  for (int64_t first = 0; first < forced_lines(task, options); first += options.batch_size) {
    for (auto& ids : store.at(sample_name(task, setting.model, first)).get<Outputs>()) outputs.push_back(ids);
  }
  return outputs;
}

nlohmann::json to_json(const infer::PredictionQuality& quality) {
  return {exact_text(quality.accuracy), exact_text(quality.cross_entropy)};
}

infer::PredictionQuality quality_of(const nlohmann::json& json) {
  return {.accuracy = exact_number(json.at(0)), .cross_entropy = exact_number(json.at(1))};
}

nlohmann::json to_json(const ForcedAlphas& alphas) {
  return {{"at_temperature_0", exact_text(alphas.at_temperature_0)},
          {"at_temperature_1", exact_text(alphas.at_temperature_1)},
          {"positions", alphas.positions},
          {"target", to_json(alphas.target)},
          {"drafter", to_json(alphas.drafter)}};
}

ForcedAlphas alphas_of(const nlohmann::json& json) {
  return {.at_temperature_0 = exact_number(json.at("at_temperature_0")),
          .at_temperature_1 = exact_number(json.at("at_temperature_1")),
          .positions = json.at("positions"),
          .target = quality_of(json.at("target")),
          .drafter = quality_of(json.at("drafter"))};
}

}  // namespace

std::vector<Setting> forced_settings(const MeasuredTask& task) {
  std::vector<Setting> settings;
  std::set<std::string> drafters;
  for (const auto& row : task.rows) {
    const std::string drafter = row.settings.drafter_label();
    if (drafter.empty() || typical_lines(task.own_greedy(row.settings)).empty()) continue;
    if (drafters.insert(drafter).second) settings.push_back(row.settings);
  }
  return settings;
}

std::vector<Measurement> sampling_measurements(const MeasuredTask& task, const SuiteOptions& options, Engine& engine) {
  std::vector<Measurement> measurements;
  std::set<std::string> models;
  const int64_t lines = forced_lines(task, options);
  for (const auto& row : task.rows) {
    if (row.settings.drafter_label().empty() || !models.insert(row.settings.model).second) continue;
    for (int64_t first = 0; first < lines; first += options.batch_size) {
      const auto rows = static_cast<size_t>(std::min(options.batch_size, lines - first));
      const auto sample = [&task, &engine, sampling = sampling_of(row.settings), first, rows] {
        const auto prompts = std::span(task.prompts).subspan(static_cast<size_t>(first), rows);
        nlohmann::json outputs = nlohmann::json::array();
        for (const LineRecord& record : engine.decode(sampling, {prompts, first, task.max_new_tokens, false})) {
          outputs.push_back(record.ids);
        }
        return outputs;
      };
      measurements.push_back({.name = sample_name(task, row.settings.model, first),
                              .size = static_cast<int64_t>(rows),
                              .measure = sample,
                              .owner = samples_owner(task, row.settings.model)});
    }
  }
  return measurements;
}

void measure_forced_alphas(const SuiteOptions& options, Engine& engine, MeasurementStore& store,
                           const SuiteContext& context, MeasuredTask& task) {
  const int64_t lines = forced_lines(task, options);
  if (lines == 0) return;
  std::vector<Setting> settings = forced_settings(task);
  const auto fail = [&task](const Setting& setting, const std::string& message) {
    task.failures.push_back({"drafter " + setting.drafter_label(), "teacher-forced passes", message});
  };
  std::erase_if(settings, [&](const Setting& setting) {
    const auto message = store.failure(samples_owner(task, setting.model));
    if (message) fail(setting, *message);
    return message.has_value();
  });
  const auto prompts = std::span(task.prompts).first(static_cast<size_t>(lines));
  std::vector<Measurement> measurements;
  const auto add = [&](const Setting& setting, const char* texts, std::span<const Prompt> sources, auto outputs) {
    const auto measure = [&engine, setting, sources, outputs] {
      return to_json(engine.forced_alpha(setting, sources, outputs()));
    };
    measurements.push_back(
        {.name = forced_name(task, setting, texts), .measure = measure, .owner = forced_owner(task, setting)});
  };
  for (const Setting& setting : settings) {
    add(setting, "greedy", prompts, [&task, setting, lines] { return greedy_outputs(task, setting, lines); });
    add(setting, "sampled", prompts, [&, setting] { return sampled_outputs(task, setting, options, store); });
    if (task.forced_texts.outputs.empty()) continue;
    add(setting, "texts", task.forced_texts.prompts, [&task] { return task.forced_texts.outputs; });
  }
  measure_missing(measurements, store, context);
  for (const Setting& setting : settings) {
    const std::string drafter = setting.drafter_label();
    if (const auto message = store.failure(forced_owner(task, setting))) {
      fail(setting, *message);
      continue;
    }
    task.forced[drafter] = alphas_of(store.at(forced_name(task, setting, "greedy")));
    task.forced_sampled[drafter] = alphas_of(store.at(forced_name(task, setting, "sampled")));
    if (task.forced_texts.outputs.empty()) continue;
    task.predicted[drafter] = alphas_of(store.at(forced_name(task, setting, "texts")));
  }
}

}  // namespace draftsmith::evaluate
