// JSON of results.json: visit() lists each struct's keys once, for writing and reading.
// Keys of a setting's parts are in the headers included here.
#include "evaluate/results/acceptance_json.h"
#include "evaluate/results/checks_json.h"
#include "evaluate/results/command_json.h"
#include "evaluate/results/engagement_json.h"
#include "evaluate/results/examples_json.h"
#include "evaluate/results/inside_json.h"
#include "evaluate/results/json_io.h"
#include "evaluate/results/match_rates_json.h"
#include "evaluate/results/quality_json.h"
#include "evaluate/results/results.h"
#include "evaluate/results/speed_json.h"
#include "evaluate/results/work_json.h"

namespace draftsmith::evaluate {

using nlohmann::ordered_json;

template <class Io>
void visit(Io& io, Of<Io, PredictionResult>& prediction) {
  io("accuracy", prediction.accuracy);
  io("cross_entropy", prediction.cross_entropy);
  io("relative_accuracy", prediction.relative_accuracy);
  io("relative_tv", prediction.relative_tv);
}

template <class Io>
void visit(Io& io, Of<Io, ChosenSetting>& chosen) {
  io("on", chosen.on);
  io("max_drop", chosen.max_drop);
  io("setting", chosen.setting);
  io("drop_there", chosen.drop_there);
  io("speedup_there", chosen.speedup_there);
  io("allowed", chosen.allowed);
}

template <class Io>
void visit(Io& io, Of<Io, SettingResult>& setting) {
  io("name", setting.name);
  io("group", setting.group);
  io("method", setting.method);
  io("params", setting.params);
  io("baseline", setting.baseline);
  io("hypotheses", setting.hypotheses);
  io("quality", setting.quality);
  io("speed", setting.speed);
  io("acceptance", setting.acceptance);
  io("predicted", setting.predicted);
  io("accounted", setting.accounted);
  io("work", setting.work);
  io("inside", setting.inside);
  io("drafting", setting.drafter);
  io("failed_lines", setting.failed_lines);
  io("exactness", setting.exactness);
  io("first_tokens", setting.first_tokens);
  io("lossless_check", setting.lossless_check);
  io("prediction", setting.prediction);
  io("chosen", setting.chosen);
  io("measurement_error", setting.measurement_error);
  io("repeats", setting.repeats);
}

template <class Io>
void visit(Io& io, Of<Io, ForcedAlphaResult>& alpha) {
  io("temperature_0", alpha.temperature_0);
  io("temperature_1", alpha.temperature_1);
  io("positions", alpha.positions);
  io("sampled_positions", alpha.sampled_positions);
}

template <class Io>
void visit(Io& io, Of<Io, DrafterResult>& drafter) {
  io("cost_ratio", drafter.cost_ratio);
  io("draft_step_seconds", drafter.draft_step_seconds);
  io("target_step_seconds", drafter.target_step_seconds);
  io("alpha_forced", drafter.alpha_forced);
}

template <class Io>
void visit(Io& io, Of<Io, TaskPrediction>& prediction) {
  io("texts", prediction.texts);
  io("lines", prediction.lines);
  io("positions", prediction.positions);
  io("models", prediction.models);
}

template <class Io>
void visit(Io& io, Of<Io, TaskResult>& task) {
  io("name", task.name);
  io("metric", task.metric);
  io("signature", task.signature);
  io("command_metric", task.command);
  io("lines", task.lines);
  io("cut_sources", task.cut_sources);
  if (!Io::kWrites || task.timed_again > 0) io("timed_again", task.timed_again);
  io("max_new_tokens", task.max_new_tokens);
  io("chooses", task.chooses);
  io("baseline", task.baseline);
  io("runs", task.settings);
  io("drafters", task.drafters);
  io("prediction", task.prediction);
  if (!Io::kWrites || !task.examples.empty()) io("examples", task.examples);
  if (!Io::kWrites || !task.failures.empty()) io("failures", task.failures);
}

template <class Io>
void visit(Io& io, Of<Io, Results>& results) {
  io.derived("version", kResultsVersion);
  io("suite", results.suite);
  io("environment", results.environment);
  io("options", results.options);
  io("tasks", results.tasks);
  if (!Io::kWrites || !results.match_rates.empty()) io("match_rates", results.match_rates);
  if (!Io::kWrites || !results.engagement.empty()) io("engagement", results.engagement);
}

ordered_json to_json(const Results& results) {
  JsonWriter writer;
  visit(writer, results);
  return std::move(writer.json);
}

ordered_json to_json(const TaskResult& task) {
  JsonWriter writer;
  visit(writer, task);
  return std::move(writer.json);
}

Results read_results(const ordered_json& json) {
  JsonReader reader(json);
  Results results;
  visit(reader, results);
  return results;
}

}  // namespace draftsmith::evaluate
