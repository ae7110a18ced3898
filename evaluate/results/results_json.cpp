// JSON of results.json: visit() lists each struct's keys once, for writing and reading.
#include <cmath>
#include <map>

#include "evaluate/results/checks_json.h"
#include "evaluate/results/command_json.h"
#include "evaluate/results/engagement_json.h"
#include "evaluate/results/examples_json.h"
#include "evaluate/results/json_io.h"
#include "evaluate/results/results.h"
#include "evaluate/results/work_json.h"

namespace draftsmith::evaluate {

using nlohmann::ordered_json;

constexpr const char* kInterval = "_ci95";

// Writes and reads scores under their own names.
void visit(JsonWriter& io, const Quality& quality) {
  for (const auto& score : quality.scores) io.estimate(score.name, score.value, score.interval);
  if (!quality.difference) return;
  io.estimate("difference", quality.difference->value, quality.difference->interval);
  io("p_value", quality.difference->p_value);
}
void visit(JsonReader& io, Quality& quality) {
  for (const auto& [key, value] : io.json.items()) {
    if (key.ends_with(kInterval) || key == "difference" || key == "p_value") continue;
    auto& score = quality.scores.emplace_back();
    score.name = key;
    io.estimate(key, score.value, score.interval);
  }
  if (!io.json.contains("difference")) return;
  auto& difference = quality.difference.emplace();
  io.estimate("difference", difference.value, difference.interval);
  io("p_value", difference.p_value);
}

template <class Io>
void visit(Io& io, Of<Io, infer::PhaseSeconds>& seconds) {
  io("encode", seconds.encode);
  io("prefill", seconds.prefill);
  io("draft", seconds.draft);
  io("verify", seconds.verify);
  io("other", seconds.other);
  io.derived("total", seconds.total());
}

template <class Io>
void visit(Io& io, Of<Io, Percentiles>& percentiles) {
  io("p50", percentiles.p50);
  io("p95", percentiles.p95);
  io("p99", percentiles.p99);
}

template <class Io>
void visit(Io& io, Of<Io, Latency>& latency) {
  io("sentence_ms", latency.sentence_ms);
  io("token_ms", latency.token_ms);
}

template <class Io>
void visit(Io& io, Of<Io, Ratio>& ratio) {
  io.estimate("value", ratio.value, ratio.interval);
}

template <class Io>
void visit(Io& io, Of<Io, BeamSpeedup>& versus) {
  io("beams", versus.beams);
  io("setting", versus.setting);
  io.estimate("speedup", versus.speedup.value, versus.speedup.interval);
}

template <class Io>
void visit(Io& io, Of<Io, SpeedResult>& speed) {
  io("lines", speed.lines);
  io("tokens", speed.tokens);
  io("tokens_per_second", speed.tokens_per_second);
  io("ms_per_token", speed.ms_per_token);
  io.estimate("speedup", speed.speedup.value, speed.speedup.interval);
  io.estimate("speedup_total", speed.speedup_total.value, speed.speedup_total.interval);
  io.estimate("speedup_decode", speed.speedup_decode.value, speed.speedup_decode.interval);
  io("length_ratio", speed.length_ratio);
  io("decode_ms_per_token", speed.decode_ms_per_token);
  io("seconds", speed.seconds);
  io("overhead_seconds", speed.overhead_seconds);
  io("waited_seconds", speed.waited_seconds);
  io("speedup_decode_bound", speed.bound);
  io("joules_per_token", speed.joules_per_token);
  io("joules_ratio", speed.joules_ratio);
  if (!Io::kWrites || std::isfinite(speed.latency.sentence_ms.p50)) {  // files of older programs have none
    io("sentences_per_second", speed.sentences_per_second);
    io("latency", speed.latency);
  }
  if (!Io::kWrites || !speed.versus_beams.empty()) io("versus_beams", speed.versus_beams);
}

template <class Io>
void visit(Io& io, Of<Io, Acceptance>& acceptance) {
  io("alpha", acceptance.alpha);
  io("alpha_conditional", acceptance.alpha_conditional);
  io("acceptance_rate", acceptance.acceptance_rate);
  io("tokens_per_target_run", acceptance.tokens_per_target_run);
  io("accepted_histogram", acceptance.accepted_histogram);
  io("acceptance_by_position", acceptance.acceptance_by_position);
  io("fallback_rate", acceptance.fallback_rate);
  io("rollback_rate", acceptance.rollback_rate);
  io("tokens", acceptance.tokens);
  io("target_runs", acceptance.target_runs);
  io("draft_runs", acceptance.draft_runs);
  io("target_runs_per_output", acceptance.target_runs_per_output);
  io("draft_runs_per_output", acceptance.draft_runs_per_output);
  io("verifications", acceptance.verifications);
  io("drafted", acceptance.drafted);
  io("accepted", acceptance.accepted);
  io("fallbacks", acceptance.fallbacks);
  io("rollbacks", acceptance.rollbacks);
  io("unverified", acceptance.unverified);
}

template <class Io>
void visit(Io& io, Of<Io, PredictedSpeed>& predicted) {
  io("cost_ratio", predicted.cost_ratio);
  io("speedup", predicted.speedup);
  io("e_pt_ms", predicted.e_pt_ms);
  io("long_run_ms", predicted.long_run_ms);
}

template <class Io>
void visit(Io& io, Of<Io, TimedRuns>& runs) {
  io("tokens", runs.tokens);
  io("target_runs", runs.target_runs);
  io("target_tokens", runs.target_tokens);
  io("draft_runs", runs.draft_runs);
}

template <class Io>
void visit(Io& io, Of<Io, AccountedSpeed>& accounted) {
  io("cost_ratio", accounted.cost_ratio);
  io("speedup", accounted.speedup);
  io("runs", accounted.runs);
}

template <class Io>
void visit(Io& io, Of<Io, PpdTheorem>& theorem) {
  io("latency_per_token", theorem.latency_per_token);
  io("compute_per_token", theorem.compute_per_token);
  io("units_in_use", theorem.units_in_use);
  io("speedup", theorem.speedup);
}

// Writes and reads numbers as keys, which are strings in JSON.
void visit(JsonWriter& io, const std::map<int64_t, double>& seconds) {
  for (const auto& [branches, value] : seconds) io(std::to_string(branches), value);
}
void visit(JsonReader& io, std::map<int64_t, double>& seconds) {
  for (const auto& [branches, value] : io.json.items()) seconds[key_number(branches)] = value.template get<double>();
}

template <class Io>
void visit(Io& io, Of<Io, LayerTimes>& times) {
  io("embedding", times.embedding);
  io("layer", times.layer);
  io("head", times.head);
  io("early_head", times.early_head);
  io("branches", times.branches);
  io("message", times.message);
  io("copy", times.copy);
}

template <class Io>
void visit(Io& io, Of<Io, PpdCost>& theorem) {
  io("latency_units", theorem.latency);
  io("compute_units", theorem.compute);
  io.derived("units_in_use", theorem.units_in_use());
}

template <class Io>
void visit(Io& io, Of<Io, PpdSimulation>& simulation) {
  io("layers", simulation.setting.layers);
  io("early_layer", simulation.setting.early_layer);
  io("candidates", simulation.setting.candidates);
  io("match_rate", simulation.setting.match_rate);
  io("tokens", simulation.tokens);
  io("seconds", simulation.times);
  io("copy_bytes", simulation.times.copy_bytes);
  io("plain", simulation.plain);
  io("latency_by_devices", simulation.latency);
  if (!Io::kWrites && simulation.latency.empty()) throw InvalidValue("'latency_by_devices' of a simulation is empty");
  std::vector<double> speedups;
  for (size_t n = 1; n <= simulation.latency.size(); ++n)
    speedups.push_back(simulation.speedup(static_cast<int64_t>(n)));
  io.derived("speedup_by_devices", speedups);
  io.or_null("pays_from_devices", simulation.pays_from);
  io.or_null("break_even_match_rate", simulation.break_even_match_rate);
  io("theorem", simulation.theorem);
  if constexpr (Io::kWrites) io.json["theorem"]["speedup"] = simulation.theorem_speedup();
}

template <class Io>
void visit(Io& io, Of<Io, Inside>& inside) {
  io("layers", inside.layers);
  io("layer_runs_per_token", inside.layer_runs_per_token);
  io("path_per_token", inside.path_per_token);
  io("average_exit_layer", inside.average_exit_layer);
  io("exit_histogram", inside.exit_histogram);
  io("early_layer", inside.early_layer);
  io("candidates", inside.candidates);
  io("match_rate", inside.match_rate);
  io("early_predictions", inside.early_predictions);
  io("compute_per_token", inside.compute_per_token);
  io("units_in_use", inside.units_in_use);
  io("theorem", inside.theorem);
  io("exit_layer", inside.exit_layer);
  io("simulation", inside.simulation);
}

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
  if constexpr (!Io::kWrites) part_old_account(io.json, setting);
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
  io("drafting_seconds", drafter.drafting_seconds);
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
void visit(Io& io, Of<Io, infer::MatchRate>& cell) {
  io("decoding", cell.decoding);
  io("layer", cell.layer);
  io("k", cell.k);
  std::string head = head_name(cell.trained);
  io("head", head);
  if constexpr (!Io::kWrites) cell.trained = head == head_name(true);
  io("positions", cell.positions);
  io("matches", cell.matches);
  io("tokens", cell.tokens);
  if (cell.tokens > 0) io.derived("rate", cell.rate());
}

template <class Io>
void visit(Io& io, Of<Io, MatchRateResult>& rates) {
  io("name", rates.name);
  io("task", rates.task);
  io("model", rates.model);
  io("prompts", rates.prompts);
  io("cells", rates.cells);
}

template <class Io>
void visit(Io& io, Of<Io, Results>& results) {
  if (!Io::kWrites || results.version > 1) io("version", results.version);
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
  results.version = 1;  // of files without the key
  visit(reader, results);
  return results;
}

}  // namespace draftsmith::evaluate
