#include "infer/evaluation_summary.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "infer/metrics/rouge.h"

namespace draftsmith::infer {
namespace {

using nlohmann::ordered_json;

// Beyond the interval of the ratio itself, what clocks and caches may add to a correct measurement.
constexpr double kBoundSlack = 1.03;

// Ratios of which nothing was counted are null, and what is infinite.
ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

ordered_json interval_json(const Interval& interval) {
  return {interval.low, interval.high};
}

ResamplingOptions resampling_of(const EvaluationOptions& options) {
  return {.resamples = options.resamples, .seed = options.seed, .confidence = 0.95};
}

// Logits of an L-token and a one-token step differ by less than this.
double step_error(const std::string& dtype) {
  if (dtype == "fp64") return 1e-9;
  if (dtype == "fp32") return 1e-3;
  return dtype == "fp16" ? 0.1 : 0.5;
}

class TaskSummary {
 public:
  TaskSummary(const MeasuredTask& measured, const EvaluationOptions& options, EvaluationEngine& engine)
      : measured_(measured), options_(options), engine_(engine), metric_(measured.task->metric) {}

  ordered_json json() {
    ordered_json result{{"name", measured_.task->name},
                        {"metric", metric_.options().name},
                        {"signature", metric_.signature(measured_.data.references)},
                        {"lines", measured_.data.lines()},
                        {"cut_sources", measured_.cut_sources},
                        {"max_new_tokens", measured_.max_new_tokens},
                        {"chooses", measured_.chooses}};
    result["baseline"] = row_json(measured_.rows.front());
    result["runs"] = ordered_json::array();
    for (size_t i = 1; i < measured_.rows.size(); ++i) result["runs"].push_back(row_json(measured_.rows[i]));
    result["drafters"] = drafters_json();
    if (!measured_.predicted.empty()) result["prediction"] = prediction_json();
    return result;
  }

 private:
  const RunRecords& records(const RunSettings& run) const { return measured_.records.at(run.label); }
  const LineStatistics& statistics(const RunSettings& run) const { return measured_.statistics.at(run.label); }

  ordered_json row_json(const RunRow& row) {
    const RunSettings& run = row.settings;
    const RunSettings baseline = baseline_of(run);
    const Speed speed = measure_speed(records(run), records(baseline), resampling_of(options_));
    const DecodeStats stats = sum_of_stats(records(run));
    ordered_json json{{"name", row.label}, {"method", run.method()}, {"params", run.params()}};
    json["baseline"] = baseline.label;
    json["hypotheses"] = hypotheses_file(*measured_.task, row);
    json["quality"] = quality_json(run);
    json["speed"] = speed_json(speed);
    json["acceptance"] = acceptance_json(run, stats);
    add_prediction(run, stats, json);
    if (run.temperature() == 0 && run.model == "target" && run.decode.drafts()) json["exactness"] = exactness_json(run);
    if (const auto found = measured_.predicted.find(run.drafter); found != measured_.predicted.end()) {
      json["prediction"] = drafter_quality_json(found->second);
    }
    if (row.choice) json["chosen"] = choice_json(*row.choice);
    add_bound_check(run, baseline, speed, json);
    return json;
  }

  ordered_json quality_json(const RunSettings& run) const {
    ordered_json json = ordered_json::object();
    if (!metric_.scores()) return json;
    for (const auto& score : all_scores(metric_, statistics(run), resampling_of(options_))) {
      json[score.name] = score.value;
      json[score.name + "_ci95"] = interval_json(score.interval);
    }
    if (run.label == "greedy") return json;
    const PairedTest test = paired_bootstrap(statistics(run), statistics(measured_.rows.front().settings),
                                             metric_.function(), resampling_of(options_));
    json["difference"] = test.difference;
    json["difference_ci95"] = interval_json(test.difference_interval);
    json["p_value"] = test.p_value;
    return json;
  }

  static ordered_json speed_json(const Speed& speed) {
    const auto add = [](ordered_json& json, const std::string& name, const Ratio& ratio) {
      json[name] = ratio.value;
      json[name + "_ci95"] = interval_json(ratio.interval);
    };
    ordered_json json{{"lines", speed.lines},
                      {"tokens", speed.tokens},
                      {"tokens_per_second", speed.tokens_per_second},
                      {"ms_per_token", speed.ms_per_token}};
    add(json, "speedup", speed.speedup);
    add(json, "speedup_total", speed.speedup_total);
    add(json, "speedup_decode", speed.speedup_decode);
    json["decode_ms_per_token"] = speed.decode_ms_per_token;
    json["seconds"] = {{"encode", speed.seconds.encode}, {"prefill", speed.seconds.prefill},
                       {"draft", speed.seconds.draft},   {"verify", speed.seconds.verify},
                       {"other", speed.seconds.other},   {"total", speed.seconds.total()}};
    return json;
  }

  ordered_json acceptance_json(const RunSettings& run, const DecodeStats& stats) const {
    const auto outputs = static_cast<double>(measured_.data.lines() * run.decode.num_samples);
    return {{"alpha", number(stats.alpha())},
            {"acceptance_rate", number(stats.acceptance_rate())},
            {"tokens_per_target_run", number(stats.tokens_per_target_run())},
            {"accepted_histogram", stats.accepted_histogram},
            {"acceptance_by_position", stats.acceptance_by_position()},
            {"fallback_rate", number(stats.fallback_rate())},
            {"rollback_rate", number(stats.rollback_rate())},
            {"tokens", stats.emitted},
            {"target_runs", stats.target_runs},
            {"draft_runs", stats.draft_runs},
            {"target_runs_per_output", static_cast<double>(stats.target_runs) / outputs},
            {"draft_runs_per_output", static_cast<double>(stats.draft_runs) / outputs},
            {"verifications", stats.verifications},
            {"drafted", stats.drafted},
            {"accepted", stats.accepted},
            {"fallbacks", stats.fallbacks},
            {"rollbacks", stats.rollbacks}};
  }

  void add_prediction(const RunSettings& run, const DecodeStats& stats, ordered_json& json) const {
    const auto costs = measured_.costs.find(run.drafter);
    if (costs == measured_.costs.end()) return;
    const auto prediction = predict(run, stats, costs->second);
    if (!prediction) return;
    auto& out = json["predicted"];
    out["cost_ratio"] = prediction->cost_ratio;
    out["speedup"] = prediction->speedup.value_or(prediction->speedup_from_counts);
    out["speedup_from_counts"] = prediction->speedup_from_counts;
    if (!prediction->latency) return;
    out["e_pt_ms"] = 1000 * prediction->latency->e_pt;
    out["long_run_ms"] = 1000 * prediction->latency->long_run;
  }

  // Lines whose ids differ from greedy decoding. Where they must not, the margin at the first divergence shows whether
  // rounding explains it.
  ordered_json exactness_json(const RunSettings& run) {
    const RunRecords& own = records(run);
    const RunRecords& greedy = records(greedy_baseline());
    const bool lossless = run.equals_greedy();
    int64_t differing = 0;
    double largest_margin = 0;
    for (size_t line = 0; line < own.size(); ++line) {
      if (own[line].ids == greedy[line].ids) continue;
      ++differing;
      if (lossless) largest_margin = std::max(largest_margin, margin(line, own[line].ids, greedy[line].ids));
    }
    ordered_json json{{"lossless", lossless}, {"lines", own.size()}, {"differing_lines", differing}};
    if (lossless && differing > 0) {
      json["largest_margin"] = largest_margin;
      json["explained_by_rounding"] = largest_margin < step_error(options_.dtype);
    }
    return json;
  }

  double margin(size_t line, const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    const auto first = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
    return engine_.top_two_margin(measured_.prompts[line], {a.begin(), first});
  }

  static ordered_json choice_json(const Choice& choice) {
    return {{"on", choice.task},         {"max_drop", choice.max_drop},     {"setting", choice.label},
            {"drop_there", choice.drop}, {"speedup_there", choice.speedup}, {"allowed", choice.allowed}};
  }

  void add_bound_check(const RunSettings& run, const RunSettings& baseline, const Speed& speed,
                       ordered_json& json) const {
    // In batches the lines' own counts bound nothing: a batch lasts as long as its slowest line. Without verification
    // the drafter alone sets the pace.
    const bool verifies = run.decode.drafts() && run.decode.acceptance_name() != "accept_all";
    if (!verifies || speed.lines == 0 || options_.batch_size * run.decode.num_samples > 1) return;
    const double bound = decode_bound(records(run), records(baseline));
    json["speed"]["speedup_decode_bound"] = bound;
    if (speed.speedup_decode.interval.low <= bound * kBoundSlack) return;
    json["measurement_error"] = "speedup_decode exceeds what the number of target runs allows";
  }

  static ordered_json prediction_quality_json(const PredictionQuality& quality) {
    return {{"accuracy", number(quality.accuracy)}, {"cross_entropy", number(quality.cross_entropy)}};
  }

  // Relative: to the target's choice and distribution.
  static ordered_json drafter_quality_json(const ForcedAlphas& predicted) {
    ordered_json json = prediction_quality_json(predicted.drafter);
    json["relative_accuracy"] = predicted.at_temperature_0;
    json["relative_tv"] = 1 - predicted.at_temperature_1;
    return json;
  }

  ordered_json prediction_json() const {
    const ForcedAlphas& any = measured_.predicted.begin()->second;
    ordered_json models{{"target", prediction_quality_json(any.target)}};
    for (const auto& [name, predicted] : measured_.predicted) models[name] = drafter_quality_json(predicted);
    const char* texts = measured_.data.references.empty() ? "continuations" : "references";
    return {{"texts", texts},
            {"lines", measured_.forced_texts.outputs.size()},
            {"positions", any.positions},
            {"models", models}};
  }

  ordered_json drafters_json() const {
    ordered_json json = ordered_json::object();
    for (const auto& [name, costs] : measured_.costs) {
      auto& entry = json[name.empty() ? "none" : name];
      entry["cost_ratio"] = costs.cost_ratio();
      entry["draft_step_seconds"] = costs.draft;
      entry["target_step_seconds"] = costs.target;
    }
    for (const auto& [name, alpha] : measured_.forced) {
      json[name]["alpha_forced"] = {{"temperature_0", alpha.at_temperature_0},
                                    {"temperature_1", alpha.at_temperature_1},
                                    {"positions", alpha.positions}};
    }
    return json;
  }

  const MeasuredTask& measured_;
  const EvaluationOptions& options_;
  EvaluationEngine& engine_;
  Metric metric_;
};

}  // namespace

std::string hypotheses_file(const EvaluationTask& task, const RunRow& row) {
  return fmt::format("hyp/{}.{}.txt", file_safe(task.name), row.label);
}

void score_hypotheses(MeasuredTask& measured, const EvaluationEngine& engine) {
  const Metric metric(measured.task->metric);
  for (const auto& [label, records] : measured.records) {
    auto& lines = measured.hypotheses[label];
    std::vector<std::string> texts;
    for (const LineRecord& record : records) {
      lines.push_back(hypothesis_line(engine.text(record.ids, measured.task->ids), metric.options()));
      texts.push_back(metric.options().name == "rouge" ? unescape_sentences(lines.back()) : lines.back());
    }
    measured.statistics[label] = metric.statistics(texts, measured.data.references);
  }
}

std::vector<Candidate> candidates_of(const MeasuredTask& measured, const std::vector<RunSettings>& runs) {
  const Metric metric(measured.task->metric);
  const ResamplingOptions few{.resamples = 1, .seed = 1, .confidence = 0.95};  // only the values are used
  std::vector<Candidate> candidates;
  for (const RunSettings& run : runs) {
    const Speed speed = measure_speed(measured.records.at(run.label), measured.records.at(baseline_of(run).label), few);
    const double quality = metric.scores() ? metric.score(measured.statistics.at(run.label).sum()) : 0;
    candidates.push_back({run.label, quality, speed.speedup_total.value});
  }
  return candidates;
}

ordered_json summarize_task(const MeasuredTask& measured, const EvaluationOptions& options, EvaluationEngine& engine) {
  return TaskSummary(measured, options, engine).json();
}

}  // namespace draftsmith::infer
