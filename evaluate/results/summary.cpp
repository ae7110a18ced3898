#include "evaluate/results/summary.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "evaluate/measure/failures.h"
#include "evaluate/results/drafter_summary.h"
#include "evaluate/results/examples.h"
#include "evaluate/results/inside_summary.h"
#include "evaluate/results/lossless_checks.h"
#include "evaluate/results/work_summary.h"
#include "evaluate/suite/task_metric.h"
#include "infer/parts.h"

namespace draftsmith::evaluate {
namespace {

// Factor by which clocks and caches may push a correct measurement beyond the interval of its ratio.
constexpr double kBoundSlack = 1.03;
// Timed lines that a failed bound takes: one disturbance can lie in most of fewer, whose interval is too narrow then.
constexpr int64_t kFewestLinesOfBound = 8;

std::optional<FailedLines> failed_lines(const SettingRecords& records) {
  std::optional<FailedLines> failed;
  for (size_t line = 0; line < records.size(); ++line) {
    if (!records[line].failure) continue;
    if (!failed) failed = {.lines = 0, .first = static_cast<int64_t>(line), .failure = *records[line].failure};
    ++failed->lines;
  }
  return failed;
}

metrics::ResamplingOptions resampling_of(const SuiteOptions& options) {
  return {.resamples = options.resamples, .seed = options.seed, .confidence = 0.95};
}

// Returns what results must keep of a metric's command, so that they are read without it.
std::optional<metrics::CommandOptions> measured_command(const metrics::MetricOptions& metric) {
  if (metric.kind() != metrics::Command::kName) return std::nullopt;
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
    result.lines = measured_.data.lines();
    result.cut_sources = measured_.cut_sources;
    for (const auto& [label, records] : measured_.records) {
      for (const LineRecord& record : records) result.timed_again += record.timed_again;
    }
    result.max_new_tokens = measured_.max_new_tokens;
    result.chooses = measured_.chooses;
    result.failures = measured_.failures;
    result.baseline = row_result(measured_.rows.front());
    for (size_t i = 1; i < measured_.rows.size(); ++i) {
      const SettingRow& row = measured_.rows[i];
      const auto message = failure_of([&] { result.settings.push_back(row_result(row)); });
      if (message) result.failures.push_back({row.label, "checks", *message});
    }
    result.drafters = drafter_results(measured_);
    if (!measured_.predicted.empty()) result.prediction = task_prediction(measured_);
    result.examples = example_outputs(measured_, engine_, result.failures);
    return result;
  }

 private:
  const SettingRecords& records(const Setting& setting) const { return measured_.records.at(setting.label); }
  const metrics::LineStatistics& statistics(const Setting& setting) const {
    return measured_.statistics.at(setting.label);
  }

  SettingResult row_result(const SettingRow& row) {
    const Setting& setting = row.settings;
    const Setting baseline = baseline_of(setting);
    const infer::DecodeStats stats = sum_of_stats(records(setting));
    SettingResult result;
    result.name = row.label;
    result.group = setting.group;
    result.method = setting.method();
    result.params = setting.params();
    result.baseline = baseline.label;
    result.hypotheses = hypotheses_file(*measured_.task, row);
    result.quality = quality(setting);
    static_cast<Speed&>(result.speed) = measure_speed(records(setting), records(baseline), resampling_of(options_));
    result.speed.versus_beams = versus_beams(setting);
    result.failed_lines = failed_lines(records(setting));
    result.acceptance = acceptance(setting, stats);
    add_prediction(setting, stats, result);
    result.work = work_result(measured_, setting, engine_);
    add_inside(setting, stats, result);
    result.drafter = setting.drafter_label();
    add_lossless_checks(setting, result);
    if (const auto found = measured_.predicted.find(result.drafter); found != measured_.predicted.end()) {
      result.prediction = drafter_prediction(found->second);
    }
    if (row.choice) result.chosen = chosen(*row.choice);
    if (!setting.repeats.empty()) result.repeats = setting.repeats;
    add_bound_check(setting, baseline, result);
    return result;
  }

  Quality quality(const Setting& setting) const {
    Quality quality;
    if (metric_->scores().empty()) return quality;
    quality.scores = metrics::all_scores(*metric_, statistics(setting), resampling_of(options_));
    const Setting baseline = baseline_of(setting);
    if (setting.label == baseline.label) return quality;
    const metrics::PairedTest test = metrics::paired_bootstrap(statistics(setting), statistics(baseline),
                                                               metric_->function(), resampling_of(options_));
    quality.difference = {.value = test.difference, .interval = test.difference_interval, .p_value = test.p_value};
    return quality;
  }

  int64_t lines_together(const Setting& setting) const {
    return setting.decode.batch_size.value_or(options_.batch_size);
  }

  // Returns the speed beside the target's beam searches with the same batches; of searches with the same number of
  // beams the first one counts.
  std::vector<BeamSpeedup> versus_beams(const Setting& setting) const {
    std::vector<BeamSpeedup> found;
    for (const SettingRow& row : measured_.rows) {
      const Setting& beam = row.settings;
      const bool alike = lines_together(beam) == lines_together(setting) && setting.decode.num_samples == 1;
      if (!beam.decode.searches_beams() || !beam.decodes_target() || !alike) continue;
      const int64_t beams = beam.decode.num_beams.value_or(0);
      if (std::ranges::find(found, beams, &BeamSpeedup::beams) != found.end()) continue;
      found.push_back(
          {beams, row.label, measure_speed(records(setting), records(beam), resampling_of(options_)).speedup});
    }
    return found;
  }

  // Returns the number of a setting's output sequences on the whole task; failed lines have none.
  int64_t outputs(const Setting& setting) const {
    const auto decoded = std::ranges::count_if(records(setting), [](const auto& line) { return !line.failure; });
    return decoded * setting.decode.num_samples;
  }

  static std::optional<bool> alpha_is_conditional(const Setting& setting) {
    if (!setting.decode.drafts()) return std::nullopt;
    const infer::WindowTraits window = infer::window_traits(setting.decode);
    return window.decides != infer::Decides::kUpFront || window.replays;
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
            .draft_runs_per_output = static_cast<double>(stats.draft_runs) / count,
            .verifications = stats.verifications,
            .drafted = stats.drafted,
            .accepted = stats.accepted,
            .fallbacks = stats.fallbacks,
            .rollbacks = stats.rollbacks,
            .unverified = stats.unverified > 0 ? std::optional(stats.unverified) : std::nullopt};
  }

  void add_inside(const Setting& setting, const infer::DecodeStats& stats, SettingResult& result) const {
    result.inside = inside_result(setting, engine_.depth(setting), stats, outputs(setting));
    if (!result.inside || !result.inside->theorem) return;
    // The theorem leaves out heads, caches and everything else beside the layers.
    if (!result.predicted) result.predicted.emplace();
    result.predicted->speedup = result.inside->theorem->speedup;
  }

  void add_prediction(const Setting& setting, const infer::DecodeStats& stats, SettingResult& result) const {
    const auto costs = measured_.costs.find(setting.drafter_label());
    if (costs == measured_.costs.end()) return;
    // Counts of other lines would not explain the time of the timed ones.
    const infer::DecodeStats counts = timed_counts(records(setting));
    if (const auto timed = predict(setting, counts, costs->second)) {
      result.accounted = {.cost_ratio = timed->cost_ratio, .speedup = timed->speedup_from_counts};
    }
    const auto prediction = predict(setting, stats, costs->second);
    if (!prediction) return;
    if (!prediction->speedup) return;
    result.predicted = {.cost_ratio = prediction->cost_ratio, .speedup = *prediction->speedup};
    if (!prediction->latency) return;
    result.predicted->e_pt_ms = 1000 * prediction->latency->e_pt;
    result.predicted->long_run_ms = 1000 * prediction->latency->long_run;
  }

  // Adds the checks of what the setting promises.
  void add_lossless_checks(const Setting& setting, SettingResult& result) {
    if (setting.temperature() == 0 && compares_with_own_greedy(setting)) {
      result.exactness = check_exactness(measured_, setting, engine_);
      if (result.exactness->lossless) result.lossless_check = result.exactness->explained_by_rounding.value_or(true);
    }
    result.first_tokens = check_first_tokens(measured_, setting, options_.seed, engine_);
    if (result.first_tokens) result.lossless_check = result.first_tokens->passed;
  }

  static ChosenSetting chosen(const Choice& choice) {
    return {.on = choice.task,
            .max_drop = choice.max_drop,
            .setting = choice.label,
            .drop_there = choice.drop,
            .speedup_there = choice.speedup,
            .allowed = choice.allowed};
  }

  void add_bound_check(const Setting& setting, const Setting& baseline, SettingResult& result) const {
    // In batches the lines' own counts bound nothing: a batch lasts as long as its slowest line. A target that only
    // reads drafts runs without its head, which makes its runs cheaper than plain steps.
    const bool runs_head =
        setting.decode.drafts() && infer::acceptance_traits(setting.decode).target != infer::TargetRole::kReads;
    // At other temperatures the speed of a drafter that decodes alone is unknown.
    const bool comparable = setting.decodes_target() || setting.temperature() == 0;
    if (!(runs_head || setting.decode.decodes_inside()) || !comparable) return;
    SpeedResult& speed = result.speed;
    if (speed.lines == 0 || lines_together(setting) * setting.decode.num_samples > 1) return;
    // A model is bounded by its own steps, however fast the target's are.
    const SettingRecords& plain = setting.decodes_target() ? records(baseline) : measured_.own_greedy(setting);
    const LayerDepth depth = engine_.depth(setting);
    const double bound = setting.algorithm() == infer::Algorithm::kCalm ? layer_bound(records(setting), depth.layers)
                                                                        : decode_bound(records(setting), plain, depth);
    if (bound == 0) return;
    const Ratio own = measure_speed(records(setting), plain, resampling_of(options_)).speedup_decode;
    speed.bound = bound * (own.value > 0 ? speed.speedup_decode.value / own.value : 1);
    if (own.interval.low <= bound * kBoundSlack || speed.lines < kFewestLinesOfBound) return;
    result.measurement_error = "speedup_decode exceeds what the number of target runs allows";
  }

  const MeasuredTask& measured_;
  const SuiteOptions& options_;
  Engine& engine_;
  std::unique_ptr<const metrics::Metric> metric_;
};

}  // namespace

std::string hypotheses_file(const TaskOptions& task, const SettingRow& row) {
  return fmt::format("hyp/{}.{}.txt", file_safe(task.name), file_safe(row.label));
}

TaskResult summarize_task(const MeasuredTask& measured, const SuiteOptions& options, Engine& engine) {
  return TaskSummary(measured, options, engine).result();
}

}  // namespace draftsmith::evaluate
