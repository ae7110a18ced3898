// Summary of a task's records: quality with intervals, speed, acceptance, prediction, work, layers, drafters, examples.
#include "evaluate/results/summary.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/utf8.h"
#include "evaluate/measure/failures.h"
#include "evaluate/suite/suite_options.h"
#include "evaluate/suite/tasks.h"
#include "evaluate/theory/formulas.h"
#include "infer/parts.h"

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

// Returns the operations factor of a fixed window at the measured alpha.
std::optional<double> theory_ratio(const Setting& setting, const infer::DecodeStats& stats, double drafter_ratio) {
  const bool fixed = setting.decode.drafts() && infer::window_traits(setting.decode).constant_length;
  if (!fixed || stats.overlap_count == 0 || !std::isfinite(drafter_ratio)) return std::nullopt;
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
void add_ppd(const Setting& setting, const LayerDepth& depth, const infer::DecodeStats& stats, int64_t outputs,
             Inside& inside) {
  inside.early_layer = depth.early;
  inside.candidates = setting.decode.candidates;
  inside.match_rate = stats.match_rate();
  inside.compute_per_token = per(stats.compute_units, stats.emitted);
  inside.units_in_use = per(stats.compute_units, stats.latency_units);
  if (stats.early_predictions == 0) return;
  const PpdCost cost =
      ppd_cost_per_token({.layers = depth.layers,
                          .early_layer = depth.early,
                          .candidates = setting.decode.candidates,
                          .match_rate = stats.match_rate() * per(stats.emitted - outputs, stats.emitted)});
  inside.theorem = {.units_in_use = cost.units_in_use(), .speedup = static_cast<double>(depth.layers) / cost.latency};
}

PredictionResult model_prediction(const infer::PredictionQuality& quality) {
  return {
      .accuracy = quality.accuracy, .cross_entropy = quality.cross_entropy, .relative_accuracy = {}, .relative_tv = {}};
}

// Returns accuracy and cross entropy of a drafter, and its agreement with the target in choice and distribution.
PredictionResult drafter_prediction(const ForcedAlphas& predicted) {
  PredictionResult result = model_prediction(predicted.drafter);
  result.relative_accuracy = predicted.at_temperature_0;
  result.relative_tv = 1 - predicted.at_temperature_1;
  return result;
}

// Returns step times and alpha_forced by the drafter's name.
Named<DrafterResult> drafter_results(const MeasuredTask& measured) {
  std::map<std::string, DrafterResult> drafters;
  for (const auto& [name, costs] : measured.costs) {
    drafters[name] = {.cost_ratio = costs.cost_ratio(), .target_step_seconds = costs.target, .alpha_forced = {}};
  }
  for (const auto& [name, alpha] : measured.forced) {
    const ForcedAlphas& sampled = measured.forced_sampled.at(name);
    drafters[name].alpha_forced = {.temperature_0 = alpha.at_temperature_0,
                                   .temperature_1 = sampled.at_temperature_1,
                                   .positions = alpha.positions};
  }
  return {drafters.begin(), drafters.end()};
}

constexpr size_t kLines = 3;
constexpr size_t kSettings = 6;
constexpr size_t kFewestTokens = 8;
constexpr size_t kMostTokens = 60;

const char* origin_name(infer::TokenOrigin origin) {
  switch (origin) {
    case infer::TokenOrigin::kDrafted:
      return "drafted";
    case infer::TokenOrigin::kUnverified:
      return "unverified";
    case infer::TokenOrigin::kTarget:
      return "target";
    case infer::TokenOrigin::kRejected:
      return "rejected";
  }
  return "target";
}

// Returns the first lines whose greedy outputs are neither very short nor long.
std::vector<size_t> chosen_lines(const SettingRecords& greedy) {
  std::vector<size_t> lines;
  for (size_t line = 0; line < greedy.size() && lines.size() < kLines; ++line) {
    const size_t tokens = greedy[line].ids.size();
    if (tokens >= kFewestTokens && tokens <= kMostTokens) lines.push_back(line);
  }
  return lines;
}

// Returns the setting with the most tokens a target run of each method that drafts for the target, of equals the first.
std::vector<const Setting*> chosen_settings(const MeasuredTask& measured) {
  std::vector<const Setting*> chosen;
  const auto tokens = [&](const Setting& setting) {
    return sum_of_stats(measured.records.at(setting.label)).tokens_per_target_run();
  };
  for (const SettingRow& row : measured.rows) {
    const Setting& setting = row.settings;
    if (!setting.decode.drafts() || !setting.repeats.empty()) continue;
    const auto best = std::ranges::find(chosen, setting.method(), &Setting::method);
    if (best == chosen.end()) {
      chosen.push_back(&setting);
    } else if (tokens(setting) > tokens(**best)) {
      *best = &setting;
    }
  }
  return chosen;
}

// Returns tokens as the texts that they add to what stands before them. Tokens of parts of characters have the text
// that they have alone, and EOS has none.
std::vector<TokenText> token_texts(const std::vector<infer::TracedToken>& tokens, const Engine& engine, bool ids) {
  std::vector<TokenText> texts;
  std::vector<int64_t> kept;
  std::vector<int64_t> before;  // with rejected tokens of the draft at hand
  for (const infer::TracedToken& token : tokens) {
    const bool rejected = token.origin == infer::TokenOrigin::kRejected;
    if (!rejected) before = kept;
    const std::string old = engine.text(before, ids);
    before.push_back(token.id);
    if (!rejected) kept = before;
    const std::string all = engine.text(before, ids);
    std::string text =
        replace_invalid_utf8(all.starts_with(old) ? all.substr(old.size()) : engine.text({token.id}, ids));
    if (!text.empty()) texts.push_back({std::move(text), origin_name(token.origin)});
  }
  return texts;
}

// Returns three lines of usual length, decoded again by one setting of each method whose drafts the target verifies, at
// most six: the setting with the most tokens a target run, of equals the first. It is chosen by counts, so that the
// machine's load changes no example. Empty without such settings. A setting that fails is added to `failures`.
std::vector<Example> example_outputs(const MeasuredTask& measured, Engine& engine,
                                     std::vector<SettingFailure>& failures) {
  const bool ids = measured.task->ids;
  const auto& references = measured.data.references;
  const SettingRecords& greedy = measured.records.at(measured.rows.front().settings.label);
  auto settings = chosen_settings(measured);
  std::vector<Example> examples;
  for (const size_t line : chosen_lines(greedy)) {
    const bool scored = line < references.size() && !references[line].empty();
    const auto number = static_cast<int64_t>(line);
    Example example{.line = number,
                    .source = replace_invalid_utf8(measured.data.sources[line]),
                    .reference = scored ? replace_invalid_utf8(references[line].front()) : "",
                    .greedy = replace_invalid_utf8(engine.text(greedy[line].ids, ids)),
                    .outputs = {}};
    std::erase_if(settings, [&](const Setting* setting) {
      if (example.outputs.size() == kSettings) return false;
      const auto message = failure_of([&] {
        const auto trace = engine.trace(*setting, measured.prompts[line], number, measured.max_new_tokens);
        ExampleOutput output{setting->label, token_texts(trace, engine, ids)};
        // Engines that know no origins trace nothing.
        if (!output.tokens.empty()) example.outputs.push_back(std::move(output));
      });
      if (message) failures.push_back({setting->label, "examples", *message});
      return message.has_value();
    });
    if (!example.outputs.empty()) examples.push_back(std::move(example));
  }
  return examples;
}

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
    result.chosen = row.choice;
    if (!setting.repeats.empty()) result.repeats = setting.repeats;
    add_bound_check(setting, baseline, result);
    return result;
  }

  Quality quality(const Setting& setting) const {
    const Setting baseline = baseline_of(setting);
    if (setting.label == baseline.label) return quality_of(*metric_, statistics(setting), nullptr, options_);
    return quality_of(*metric_, statistics(setting), &statistics(baseline), options_);
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
    if (!prediction || !prediction->speedup) return;
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
    speed.speedup_decode_bound = bound * (own.value > 0 ? speed.speedup_decode.value / own.value : 1);
    if (own.interval.low <= bound * kBoundSlack || speed.lines < kFewestLinesOfBound) return;
    result.measurement_error = "speedup_decode exceeds what the number of target runs allows";
  }

  const MeasuredTask& measured_;
  const SuiteOptions& options_;
  Engine& engine_;
  std::unique_ptr<const metrics::Metric> metric_;
};

}  // namespace

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
    add_ppd(setting, depth, stats, outputs, inside);
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

TaskResult summarize_task(const MeasuredTask& measured, const SuiteOptions& options, Engine& engine) {
  return TaskSummary(measured, options, engine).result();
}

}  // namespace draftsmith::evaluate
