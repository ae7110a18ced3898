// Summary of a task's records: quality with intervals, speed, acceptance, prediction, work, layers, drafters.
#include "evaluate/results/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "evaluate/suite/suite_options.h"
#include "evaluate/suite/tasks.h"
#include "evaluate/theory/formulas.h"
#include "infer/acceptance/acceptance_rules.h"
#include "infer/windows/window_rules.h"

namespace draftsmith::evaluate {
namespace {

std::optional<infer::DecodeWork> work_of(const MeasuredTask& measured, const Setting& setting, Engine& engine) {
  const SettingRecords& records = measured.records.at(setting.label);
  std::vector<infer::DecodedLine> lines;
  for (size_t line = 0; line < records.size(); ++line) {
    if (records[line].failure) continue;
    lines.push_back({.source = std::ssize(measured.prompts[line]), .stats = &records[line].stats});
  }
  auto work = lines.empty() ? std::nullopt : engine.work(setting, lines);
  if (work && (work->emitted == 0 || work->total().bytes() == 0)) return std::nullopt;
  return work;
}

// Returns the work as much as one token takes.
infer::Work per_token(const infer::Work& work, const infer::DecodeWork& whole) {
  return work.times(1 / static_cast<double>(whole.emitted));
}

// Returns whether theory is of the setting: windows of constant length, whose tokens stay with probability alpha.
bool follows_theory(const Setting& setting) {
  const infer::DecodeOptions& decode = setting.decode;
  return decode.drafts() && infer::window_traits(decode).constant_length && infer::acceptance_traits(decode).lossless;
}

// Returns the operations factor of a fixed window at the measured alpha.
std::optional<double> theory_ratio(const Setting& setting, const infer::DecodeStats& stats, double drafter_ratio) {
  if (!follows_theory(setting) || stats.overlap_count == 0 || !std::isfinite(drafter_ratio)) return std::nullopt;
  return operations_factor(std::clamp(stats.alpha(), 0.0, 1.0), setting.decode.fixed_window(), drafter_ratio);
}

// Returns the work of a setting on all lines of the task that it decoded; nothing if it put out nothing, or if the
// engine does not know the shapes of its models.
std::optional<WorkResult> work_result(const MeasuredTask& measured, const Setting& setting, Engine& engine) {
  const auto work = work_of(measured, setting, engine);
  if (!work) return std::nullopt;
  const infer::Work own = per_token(work->total(), *work);
  WorkResult result{.operations_per_token = own.operations, .bytes_per_token = own.bytes()};
  result.theory_operations_ratio =
      theory_ratio(setting, sum_of_stats(measured.records.at(setting.label)), work->operations_ratio());
  const auto greedy = work_of(measured, greedy_baseline(), engine);
  if (!greedy) return result;
  const infer::Work plain = per_token(greedy->total(), *greedy);
  result.operations_ratio = own.operations / plain.operations;
  result.bytes_ratio = own.bytes() / plain.bytes();
  result.intensity_ratio = *result.operations_ratio / *result.bytes_ratio;
  result.decode_operations_ratio =
      per_token(work->decoding(), *work).operations / per_token(greedy->decoding(), *greedy).operations;
  return result;
}

double per(int64_t count, int64_t tokens) {
  return static_cast<double>(count) / static_cast<double>(tokens);
}

// Adds what PPD counted, and Theorem 4.1 summed over the outputs: each has a token that nothing was predicted for.
void add_ppd(const LayerDepth& depth, const infer::DecodeStats& stats, int64_t outputs, Inside& inside) {
  inside.early_layer = depth.early;
  inside.match_rate = stats.match_rate();
  inside.units_in_use = per(stats.compute_units, stats.latency_units);
  if (stats.early_predictions == 0) return;
  const double rate = stats.match_rate() * per(stats.emitted - outputs, stats.emitted);
  inside.theorem_speedup = static_cast<double>(depth.layers) / ppd_latency(depth.layers, depth.early, rate);
}

PredictionResult model_prediction(const infer::PredictionQuality& quality) {
  return {.accuracy = quality.accuracy, .cross_entropy = quality.cross_entropy};
}

// Returns accuracy and cross entropy of a drafter, and its agreement with the target in choice and distribution.
PredictionResult drafter_prediction(const infer::ForcedAlpha& predicted) {
  PredictionResult result = model_prediction(predicted.drafter);
  result.relative_accuracy = predicted.agreement;
  result.relative_tv = 1 - predicted.alpha;
  return result;
}

// Returns step times and alpha_forced by the drafter's name.
Named<DrafterResult> drafter_results(const MeasuredTask& measured) {
  std::map<std::string, DrafterResult> drafters;
  for (const auto& [name, costs] : measured.costs) drafters[name].cost_ratio = median_costs(costs).cost_ratio();
  for (const auto& [name, alpha] : measured.forced) {
    drafters[name].alpha_forced = {.temperature_0 = alpha.agreement,
                                   .temperature_1 = measured.forced_sampled.at(name).alpha,
                                   .positions = alpha.positions};
  }
  return {drafters.begin(), drafters.end()};
}

std::optional<FailedLines> failed_lines(const SettingRecords& records) {
  std::optional<FailedLines> failed;
  for (size_t line = 0; line < records.size(); ++line) {
    if (!records[line].failure) continue;
    if (!failed) failed = {.lines = 0, .first = static_cast<int64_t>(line), .failure = *records[line].failure};
    ++failed->lines;
  }
  return failed;
}

// Returns what results must keep of a metric's command, so that they are read without it.
std::optional<metrics::CommandOptions> measured_command(const metrics::MetricOptions& metric) {
  if (!metric.runs_command()) return std::nullopt;
  metrics::CommandOptions command = metric;
  command.label = metrics::command_label(command);
  return command;
}

class TaskSummary {
 public:
  TaskSummary(const MeasuredTask& measured, const SuiteOptions& options, Engine& engine)
      : measured_(measured), options_(options), engine_(engine), metric_(task_metric(*measured.task)) {}

  TaskResult result() {
    TaskResult result;
    result.name = measured_.task->name;
    result.metric = metric_->name();
    result.command = measured_command(measured_.task->metric);
    result.signature = metric_->signature(measured_.data.references);
    result.warning = metric_warning(measured_);
    result.lines = measured_.data.lines();
    result.cut_sources = measured_.cut_sources;
    for (const auto& [label, records] : measured_.records) {
      for (const LineRecord& record : records) result.timed_again += record.timed_again;
    }
    result.max_new_tokens = measured_.max_new_tokens;
    result.chooses = measured_.chooses;
    result.failures = measured_.failures;
    result.baseline = row_result(measured_.settings.front(), kGreedyLabel);
    const auto add_row = [&](const Setting& setting, const std::string& name, const ChosenSetting* chosen) {
      const auto add = [&] {
        result.settings.push_back(row_result(setting, name));
        if (chosen != nullptr) result.settings.back().chosen = *chosen;
      };
      if (const auto message = failure_of(add)) result.failures.push_back({name, "checks", *message});
    };
    for (const Setting& setting : measured_.settings) {
      if (!setting.is_greedy_baseline() && measured_.has_row(setting)) add_row(setting, setting.label, nullptr);
    }
    for (const ChosenSetting& chosen : measured_.chosen) {
      const Setting& setting = measured_.setting(chosen.setting);
      add_row(setting, chosen_label(setting.group, chosen.max_drop), &chosen);
    }
    result.drafters = drafter_results(measured_);
    if (!measured_.predicted.empty()) result.prediction = task_prediction(measured_);
    return result;
  }

 private:
  const SettingRecords& records(const Setting& setting) const { return measured_.records.at(setting.label); }
  const metrics::LineStatistics& statistics(const Setting& setting) const {
    return measured_.statistics.at(setting.label);
  }

  SettingResult row_result(const Setting& setting, const std::string& name) {
    const Setting baseline = baseline_of(setting);
    const infer::DecodeStats stats = sum_of_stats(records(setting));
    SettingResult result;
    result.name = name;
    result.method = setting.method();
    result.params = setting.params();
    result.baseline = baseline.label;
    result.hypotheses = hypotheses_file(*measured_.task, name);
    result.quality = quality(setting);
    result.speed = measure_speed(records(setting), records(baseline));
    result.failed_lines = failed_lines(records(setting));
    result.acceptance = acceptance(setting, stats);
    if (const auto measured = measured_.costs.find(setting.drafter_label()); measured != measured_.costs.end()) {
      const infer::StepCosts costs = median_costs(measured->second);
      // Counts of other lines would not explain the time of the timed ones. Step times are of one row.
      const bool alone = measured_.batch_size_of(setting) == 1;
      const double greedy = result.speed.decode_ms_per_token * result.speed.speedup_decode.value / 1000;
      result.accounted = accounted_speed(timed_counts(records(setting)), costs, alone ? greedy : NAN);
      if (!copies(setting)) result.predicted = predicted_speed(setting, stats, outputs(setting), costs);
    }
    result.work = work_result(measured_, setting, engine_);
    if (result.work && copies(setting)) result.work->theory_operations_ratio.reset();
    add_inside(setting, stats, result);
    result.drafter = setting.drafter_label();
    add_lossless_checks(setting, result);
    if (!setting.repeats.empty()) result.repeats = setting.repeats;
    return result;
  }

  Quality quality(const Setting& setting) const {
    const Setting baseline = baseline_of(setting);
    if (setting.label == baseline.label) return quality_of(*metric_, statistics(setting), nullptr, options_);
    return quality_of(*metric_, statistics(setting), &statistics(baseline), options_);
  }

  // Returns the number of a setting's output sequences on the whole task; failed lines have none.
  int64_t outputs(const Setting& setting) const {
    const auto decoded = std::ranges::count_if(records(setting), [](const auto& line) { return !line.failure; });
    return decoded * setting.decode.num_samples;
  }

  // Returns whether the setting's drafter is prompt look-up, which drafts where it finds something.
  bool looks_up(const Setting& setting) const {
    return std::ranges::any_of(options_.drafter,
                               [&](const auto& one) { return one.lookup && one.name == setting.drafter; });
  }

  // Returns whether some windows are copies, which theory does not know.
  bool copies(const Setting& setting) const { return looks_up(setting) || setting.decode.copied_behind() > 0; }

  std::optional<bool> alpha_is_conditional(const Setting& setting) const {
    if (!setting.decode.drafts()) return std::nullopt;
    const infer::WindowTraits window = infer::window_traits(setting.decode);
    return window.decides != infer::Decides::kUpFront || window.replays || looks_up(setting);
  }

  Acceptance acceptance(const Setting& setting, const infer::DecodeStats& stats) const {
    const auto count = static_cast<double>(outputs(setting));
    return {.alpha = stats.alpha(),
            .alpha_conditional = alpha_is_conditional(setting),
            .acceptance_rate = stats.acceptance_rate(),
            .tokens_per_target_run = stats.tokens_per_target_run(),
            .accepted_histogram = stats.accepted_histogram,
            .acceptance_by_position = stats.acceptance_by_position(),
            .fallback_rate = stats.fallback_rate(),
            .rollback_rate = stats.rollback_rate(),
            .tokens = stats.emitted,
            .target_runs = stats.target_runs,
            .draft_runs = stats.draft_runs,
            .target_runs_per_output = static_cast<double>(stats.target_runs) / count,
            .draft_runs_per_output = static_cast<double>(stats.draft_runs) / count};
  }

  void add_inside(const Setting& setting, const infer::DecodeStats& stats, SettingResult& result) const {
    result.inside = inside_result(setting, engine_.depth(setting), stats, outputs(setting));
    if (!result.inside || !result.inside->theorem_speedup) return;
    // The theorem leaves out heads, caches and everything else beside the layers.
    if (!result.predicted) result.predicted.emplace();
    result.predicted->speedup = *result.inside->theorem_speedup;
  }

  // Adds the checks of what the setting promises.
  void add_lossless_checks(const Setting& setting, SettingResult& result) {
    if (setting.temperature() == 0 && compares_with_own_greedy(setting)) {
      result.exactness = check_exactness(measured_, setting, engine_);
      if (result.exactness->lossless) result.lossless_check = !result.exactness->first_unexplained;
    }
    result.first_tokens = check_first_tokens(measured_, setting, options_.seed, engine_);
    if (result.first_tokens) result.lossless_check = result.first_tokens->passed;
  }

  const MeasuredTask& measured_;
  const SuiteOptions& options_;
  Engine& engine_;
  std::unique_ptr<const metrics::Metric> metric_;
};

}  // namespace

std::optional<PredictedSpeed> predicted_speed(const Setting& setting, const infer::DecodeStats& stats, int64_t outputs,
                                              const infer::StepCosts& costs) {
  if (!follows_theory(setting) || stats.drafted == 0 || stats.target_runs == 0) return std::nullopt;
  if (costs.target.empty() || stats.overlap_count == 0) return std::nullopt;
  const int64_t window = setting.decode.fixed_window();
  const double alpha = std::clamp(stats.alpha(), 0.0, 1.0);  // a mean of fp32 sums may be a hair above 1
  const SpecGameLatency latency = specgame_latency(alpha, window, costs);
  const auto length = outputs > 0 ? std::llround(per(stats.emitted, outputs)) : 0;
  return PredictedSpeed{.speedup = walltime_improvement(alpha, window, costs, length),
                        .e_pt_ms = 1000 * latency.e_pt,
                        .long_run_ms = 1000 * latency.long_run};
}

std::optional<PredictedSpeed> accounted_speed(const infer::DecodeStats& stats, const infer::StepCosts& costs,
                                              double greedy) {
  if (stats.drafted == 0 || stats.target_runs == 0 || costs.target.empty()) return std::nullopt;
  const auto target_runs = static_cast<double>(stats.target_runs);
  const double mean_step = static_cast<double>(stats.target_tokens) / target_runs;
  const double mean_draft = static_cast<double>(stats.draft_steps.logits) / target_runs;
  const double round = costs.drafting(mean_draft) + costs.relative_target(mean_step) * costs.target[0];
  const double step = std::isfinite(greedy) ? greedy : costs.target[0];
  return PredictedSpeed{.speedup = static_cast<double>(stats.emitted) * step / (target_runs * round)};
}

std::optional<Inside> inside_result(const Setting& setting, const LayerDepth& depth, const infer::DecodeStats& stats,
                                    int64_t outputs) {
  const bool counted = stats.layer_runs > 0 && stats.emitted > 0 && depth.layers > 0;
  if (!counted || (depth.early == 0 && !setting.inside())) return std::nullopt;
  Inside inside;
  inside.layers = depth.layers;
  inside.layer_runs_per_token = per(stats.layer_runs, stats.emitted);
  inside.path_per_token = per(stats.latency_units, stats.emitted);
  if (setting.algorithm() == infer::Algorithm::kCalm) {
    inside.path_per_token = inside.layer_runs_per_token;
    inside.average_exit_layer = stats.average_exit_layer();
    inside.exit_histogram = stats.exits_by_layer;
  } else if (setting.algorithm() == infer::Algorithm::kPpd) {
    add_ppd(depth, stats, outputs, inside);
  } else {
    inside.exit_layer = depth.early;
  }
  return inside;
}

TaskPrediction task_prediction(const MeasuredTask& measured) {
  TaskPrediction result;
  result.texts = measured.data.references.empty() ? "continuations" : "references";
  result.lines = std::ssize(measured.forced_texts.outputs);
  result.positions = measured.predicted.begin()->second.positions;
  std::map<std::string, PredictionResult> models;
  for (const auto& [name, predicted] : measured.predicted) {
    models.try_emplace(measured.drafted_for.at(name), model_prediction(predicted.target));
  }
  for (const auto& [name, predicted] : measured.predicted) models[name] = drafter_prediction(predicted);
  result.models.assign(models.begin(), models.end());
  std::ranges::stable_partition(result.models, [](const auto& model) { return model.first == kTargetName; });
  return result;
}

std::string hypotheses_file(const TaskOptions& task, const std::string& row) {
  return fmt::format("hyp/{}.{}.txt", file_safe(task.name), file_safe(row));
}

TaskResult summarize_task(const MeasuredTask& measured, const SuiteOptions& options, Engine& engine) {
  return TaskSummary(measured, options, engine).result();
}

}  // namespace draftsmith::evaluate
