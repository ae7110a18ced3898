#include "evaluate/results/task_summary.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/json.h"
#include "evaluate/results/drafter_summary.h"
#include "evaluate/results/inside_summary.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

// Beyond the interval of the ratio itself, what clocks and caches may add to a correct measurement.
constexpr double kBoundSlack = 1.03;

ordered_json interval_json(const metrics::Interval& interval) {
  return {interval.low, interval.high};
}

metrics::ResamplingOptions resampling_of(const SuiteOptions& options) {
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
  TaskSummary(const MeasuredTask& measured, const SuiteOptions& options, Engine& engine)
      : measured_(measured), options_(options), engine_(engine), metric_(metrics::make_metric(measured.task->metric)) {}

  ordered_json json() {
    ordered_json result{{"name", measured_.task->name},
                        {"metric", metric_->name()},
                        {"signature", metric_->signature(measured_.data.references)},
                        {"lines", measured_.data.lines()},
                        {"cut_sources", measured_.cut_sources},
                        {"max_new_tokens", measured_.max_new_tokens},
                        {"chooses", measured_.chooses}};
    result["baseline"] = row_json(measured_.rows.front());
    result["runs"] = ordered_json::array();
    for (size_t i = 1; i < measured_.rows.size(); ++i) result["runs"].push_back(row_json(measured_.rows[i]));
    result["drafters"] = drafters_json(measured_);
    if (!measured_.predicted.empty()) result["prediction"] = prediction_json(measured_);
    return result;
  }

 private:
  const SettingRecords& records(const Setting& run) const { return measured_.records.at(run.label); }
  const metrics::LineStatistics& statistics(const Setting& run) const { return measured_.statistics.at(run.label); }

  ordered_json row_json(const SettingRow& row) {
    const Setting& run = row.settings;
    const Setting baseline = baseline_of(run);
    const Speed speed = measure_speed(records(run), records(baseline), resampling_of(options_));
    const infer::DecodeStats stats = sum_of_stats(records(run));
    ordered_json json{{"name", row.label}, {"group", run.group}, {"method", run.method()}, {"params", run.params()}};
    json["baseline"] = baseline.label;
    json["hypotheses"] = hypotheses_file(*measured_.task, row);
    json["quality"] = quality_json(run);
    json["speed"] = speed_json(speed);
    json["acceptance"] = acceptance_json(run, stats);
    add_prediction(run, stats, json);
    add_inside(run, stats, json);
    json["drafting"] = run.drafter_label();
    if (run.temperature() == 0 && compares_with_own_greedy(run)) json["exactness"] = exactness_json(run);
    if (const auto found = measured_.predicted.find(run.drafter_label()); found != measured_.predicted.end()) {
      json["prediction"] = drafter_quality_json(found->second);
    }
    if (row.choice) json["chosen"] = choice_json(*row.choice);
    add_bound_check(run, baseline, speed, json);
    return json;
  }

  ordered_json quality_json(const Setting& run) const {
    ordered_json json = ordered_json::object();
    if (metric_->scores().empty()) return json;
    for (const auto& score : metrics::all_scores(*metric_, statistics(run), resampling_of(options_))) {
      json[score.name] = score.value;
      json[score.name + "_ci95"] = interval_json(score.interval);
    }
    if (run.label == "greedy") return json;
    const metrics::PairedTest test = metrics::paired_bootstrap(
        statistics(run), statistics(measured_.rows.front().settings), metric_->function(), resampling_of(options_));
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

  ordered_json acceptance_json(const Setting& run, const infer::DecodeStats& stats) const {
    const auto outputs = static_cast<double>(measured_.data.lines() * run.decode.num_samples);
    return {{"alpha", finite_or_null(stats.alpha())},
            {"acceptance_rate", finite_or_null(stats.acceptance_rate())},
            {"tokens_per_target_run", finite_or_null(stats.tokens_per_target_run())},
            {"accepted_histogram", stats.accepted_histogram},
            {"acceptance_by_position", stats.acceptance_by_position()},
            {"fallback_rate", finite_or_null(stats.fallback_rate())},
            {"rollback_rate", finite_or_null(stats.rollback_rate())},
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

  void add_inside(const Setting& run, const infer::DecodeStats& stats, ordered_json& json) const {
    const int64_t outputs = measured_.data.lines() * run.decode.num_samples;
    const LayerDepth depth = engine_.depth(run);
    ordered_json inside = inside_json(run, depth, stats, outputs);
    if (inside.empty()) return;
    // The theorem says nothing of heads, caches or anything else that a step has beside its layers.
    if (inside.contains("theorem")) json["predicted"]["speedup"] = inside.at("theorem").at("speedup");
    const auto times = measured_.ppd_times.find(run.label);
    if (times != measured_.ppd_times.end() && stats.early_predictions > 0) {
      const double length = static_cast<double>(stats.emitted) / static_cast<double>(outputs);
      inside["simulation"] = simulate_ppd(times->second, ppd_setting(run, depth, stats), length).to_json();
    }
    json["inside"] = std::move(inside);
  }

  void add_prediction(const Setting& run, const infer::DecodeStats& stats, ordered_json& json) const {
    const auto costs = measured_.costs.find(run.drafter_label());
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

  // Lines whose ids differ from greedy decoding of the same model. Where they must not, the margin at the first
  // divergence shows whether rounding explains it.
  ordered_json exactness_json(const Setting& run) {
    const SettingRecords& own = records(run);
    const SettingRecords& greedy = measured_.own_greedy(run);
    const bool lossless = run.lossless();
    int64_t differing = 0;
    double largest_margin = 0;
    for (size_t line = 0; line < own.size(); ++line) {
      if (own[line].ids == greedy[line].ids) continue;
      ++differing;
      if (lossless) largest_margin = std::max(largest_margin, margin(run, line, own[line].ids, greedy[line].ids));
    }
    ordered_json json{{"lossless", lossless}, {"lines", own.size()}, {"differing_lines", differing}};
    if (lossless && differing > 0) {
      json["largest_margin"] = largest_margin;
      json["explained_by_rounding"] = largest_margin < step_error(options_.dtype);
    }
    return json;
  }

  double margin(const Setting& run, size_t line, const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    const auto first = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
    return engine_.top_two_margin(run, measured_.prompts[line], {a.begin(), first});
  }

  static ordered_json choice_json(const Choice& choice) {
    return {{"on", choice.task},         {"max_drop", choice.max_drop},     {"setting", choice.label},
            {"drop_there", choice.drop}, {"speedup_there", choice.speedup}, {"allowed", choice.allowed}};
  }

  void add_bound_check(const Setting& run, const Setting& baseline, const Speed& speed, ordered_json& json) const {
    // In batches the lines' own counts bound nothing: a batch lasts as long as its slowest line. Without verification
    // the drafter alone sets the pace.
    const bool verifies = run.decode.drafts() && run.decode.acceptance_name() != "accept_all";
    const bool comparable = run.model == "target" || run.temperature() == 0;  // else that model's own speed is unknown
    if (!(verifies || run.method() == "ppd") || !comparable) return;
    if (speed.lines == 0 || options_.batch_size * run.decode.num_samples > 1) return;
    // A model is bounded by its own steps, however fast the target's are.
    const SettingRecords& plain = run.model == "target" ? records(baseline) : measured_.own_greedy(run);
    const double bound = decode_bound(records(run), plain, engine_.depth(run));
    if (bound == 0) return;
    const Ratio own = measure_speed(records(run), plain, resampling_of(options_)).speedup_decode;
    json["speed"]["speedup_decode_bound"] = bound * (own.value > 0 ? speed.speedup_decode.value / own.value : 1);
    if (own.interval.low <= bound * kBoundSlack) return;
    json["measurement_error"] = "speedup_decode exceeds what the number of target runs allows";
  }

  const MeasuredTask& measured_;
  const SuiteOptions& options_;
  Engine& engine_;
  std::unique_ptr<const metrics::Metric> metric_;
};

}  // namespace

std::string hypotheses_file(const TaskOptions& task, const SettingRow& row) {
  return fmt::format("hyp/{}.{}.txt", file_safe(task.name), row.label);
}

void score_hypotheses(MeasuredTask& measured, const Engine& engine) {
  const auto metric = metrics::make_metric(measured.task->metric);
  for (const auto& [label, records] : measured.records) {
    auto& lines = measured.hypotheses[label];
    std::vector<std::string> texts;
    for (const LineRecord& record : records) {
      lines.push_back(metric->line_of(engine.text(record.ids, measured.task->ids)));
      texts.push_back(metric->text_of(lines.back()));
    }
    measured.statistics[label] = metric->statistics(texts, measured.data.references);
  }
}

std::vector<Candidate> candidates_of(const MeasuredTask& measured, const std::vector<Setting>& runs) {
  const auto metric = metrics::make_metric(measured.task->metric);
  const metrics::ResamplingOptions few{.resamples = 1, .seed = 1, .confidence = 0.95};  // only the values are used
  std::vector<Candidate> candidates;
  for (const Setting& run : runs) {
    const Speed speed = measure_speed(measured.records.at(run.label), measured.records.at(baseline_of(run).label), few);
    const double quality = metric->score(measured.statistics.at(run.label).sum(), 0);
    candidates.push_back({run.label, quality, speed.speedup_total.value});
  }
  return candidates;
}

ordered_json summarize_task(const MeasuredTask& measured, const SuiteOptions& options, Engine& engine) {
  return TaskSummary(measured, options, engine).json();
}

}  // namespace draftsmith::evaluate
