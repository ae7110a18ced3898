#include "evaluate/evaluation.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/device_kernels.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/logging.h"
#include "base/sha256.h"
#include "evaluate/engine/engine.h"
#include "evaluate/measure/counting_pass.h"
#include "evaluate/measure/failed_settings.h"
#include "evaluate/measure/failures.h"
#include "evaluate/measure/forced_alphas.h"
#include "evaluate/measure/timing.h"
#include "evaluate/report/report.h"
#include "evaluate/results/measured_task.h"
#include "evaluate/results/summary.h"
#include "evaluate/suite/setting_grid.h"
#include "evaluate/suite/suite_options.h"
#include "evaluate/suite/tasks.h"

namespace draftsmith::evaluate {

// ---- Tasks before anything is measured
// Lines, prompts, and the rows that their results will have.

// Checks all settings (expand_settings()) and reads all tasks, before anything is run or written. Returns the tasks,
// those on which settings are chosen first; they refer to `suite`. Errors: UserError with all problems of the settings,
// or with those of a task.
std::vector<MeasuredTask> prepare_tasks(const SuiteOptions& suite, const std::vector<Setting>& settings,
                                        Engine& engine);

namespace {

class Preparation {
 public:
  Preparation(const SuiteOptions& options, const std::vector<Setting>& settings, Engine& engine)
      : options_(options), settings_(settings), engine_(engine) {}

  std::vector<MeasuredTask> run() {
    Problems problems;
    for (const auto& setting : settings_) engine_.check(setting, problems);
    for (size_t i = 0; i < options_.match_rates.size(); ++i) {
      engine_.check(options_.match_rates[i], fmt::format("match_rates[{}]", i), problems);
    }
    for (size_t i = 0; i < options_.engagement.size(); ++i) {
      engine_.check(options_.engagement[i], fmt::format("engagement[{}]", i), problems);
    }
    problems.throw_if_any();
    for (const bool chooses : {true, false}) {
      for (const auto& task : options_.task) {
        if (is_choosing(task.name) == chooses) add_task(task, chooses);
      }
    }
    return std::move(tasks_);
  }

 private:
  bool is_choosing(const std::string& task) const {
    return std::any_of(settings_.begin(), settings_.end(),
                       [&](const auto& setting) { return setting.choose_on == task; });
  }

  void add_task(const TaskOptions& task, bool chooses) {
    MeasuredTask& measured = tasks_.emplace_back();
    measured.task = &task;
    measured.chooses = chooses;
    measured.data = load_task(task);
    measured.max_new_tokens = task.max_new_tokens > 0 ? task.max_new_tokens : options_.max_new_tokens;
    for (size_t line = 0; line < measured.data.sources.size(); ++line) encode(measured, line);
    measured.key = task.name + " " + sha256(options_hash(unscored(task)) + data_text(measured));
    const auto forced = static_cast<size_t>(std::min(options_.forced_lines, measured.data.lines()));
    measured.forced_texts =
        forced_texts(task, measured.data, std::span(measured.prompts).first(forced), measured.max_new_tokens, engine_);
    for (const auto& setting : settings_) {
      const bool baseline =
          setting.choose_on.empty() && (setting.is_greedy_baseline() || !chooses || is_needed_baseline(setting, task));
      if (baseline || setting.choose_on == task.name) measured.rows.push_back({setting.label, setting, std::nullopt});
    }
  }

  // Returns the task without its metric: how outputs are scored changes none of their measurements.
  static TaskOptions unscored(TaskOptions task) {
    task.metric = {};
    return task;
  }

  // Returns the content of the task's files, since their names say nothing of it.
  static std::string data_text(const MeasuredTask& task) {
    return nlohmann::json{task.prompts, task.data.references}.dump();
  }

  void encode(MeasuredTask& measured, size_t line) const {
    const TaskOptions& task = *measured.task;
    bool cut = false;
    try {
      measured.prompts.push_back(engine_.encode(measured.data.sources[line], task, cut));
    } catch (const UserError& error) {
      std::vector<Problem> problems = error.problems();
      for (Problem& problem : problems) {
        if (problem.where.empty()) problem.where = place_of(task, source_file(task), line);
      }
      throw UserError(std::move(problems));
    }
    if (cut) ++measured.cut_sources;
  }

  // Returns whether a setting of the choosing task is compared with `setting`. Choosing tasks run nothing else.
  bool is_needed_baseline(const Setting& setting, const TaskOptions& task) const {
    return std::any_of(settings_.begin(), settings_.end(), [&](const auto& other) {
      return other.choose_on == task.name &&
             (baseline_of(other).label == setting.label ||
              (compares_with_own_greedy(other) && greedy_of(other).label == setting.label));
    });
  }

  const SuiteOptions& options_;
  const std::vector<Setting>& settings_;
  Engine& engine_;
  std::vector<MeasuredTask> tasks_;
};

}  // namespace

std::vector<MeasuredTask> prepare_tasks(const SuiteOptions& suite, const std::vector<Setting>& settings,
                                        Engine& engine) {
  return Preparation(suite, settings, engine).run();
}

namespace {

namespace fs = std::filesystem;

bool has_measurement_error(const Results& results) {
  return std::ranges::any_of(results.tasks, [](const TaskResult& task) {
    return std::ranges::any_of(task.rows(), [](const auto* row) { return row->measurement_error.has_value(); });
  });
}

bool has_failures(const Results& results) {
  return std::ranges::any_of(results.tasks, [](const TaskResult& task) { return !task.failures.empty(); });
}

// Returns the share of the processors that others used since `before`, 0..1; nothing where the system does not tell.
std::optional<double> other_load(const std::optional<ProcessorTimes>& before) {
  const auto now = processor_times();
  if (!before || !now || now->wall <= before->wall) return std::nullopt;
  const double others = (now->busy - before->busy) - (now->own - before->own);
  return std::clamp(others / ((now->wall - before->wall) * static_cast<double>(cpu_cores())), 0.0, 1.0);
}

class Suite {
 public:
  // `settings` are those of the suite (expand_settings()).
  Suite(const SuiteOptions& options, const std::vector<Setting>& settings, fs::path out_dir, Engine& engine,
        const SuiteContext& context)
      : options_(options), settings_(settings), out_dir_(std::move(out_dir)), engine_(engine), context_(context) {}

  SuiteResult run() {
    tasks_ = prepare_tasks(options_, settings_, engine_);
    std::ranges::for_each(tasks_, try_command);
    make_directories(out_dir_);
    MeasurementStore store(out_dir_, common_key() + " " + engine_.fingerprint());
    if (store.resumed() > 0) log_info("resuming with {} measurements in {}", store.resumed(), out_dir_.string());
    for (auto& task : tasks_) {
      if (!task.chooses) add_chosen_rows(settings_, tasks_, task);
      measure(task, store);
    }
    const auto match_rates = count_match_rates(store);
    const std::vector<EngagementPrompts> curves = engagement_curves();
    const auto engaged = measure_engagement(curves, engine_, store, context_);
    SuiteResult result;
    result.results = summarize();
    result.results.match_rates = match_rates;
    for (size_t i = 0; i < curves.size(); ++i) add_curve(curves[i], engaged[i], result.results);
    result.table = results_table(result.results);
    write_evaluation(result.results, tasks_, out_dir_);
    result.failures = failed_checks(result.results, (out_dir_ / "results.json").string());
    // Only times come out otherwise when they are measured again; settings that failed may not fail again.
    if (result.failures.empty() || (has_measurement_error(result.results) && !has_failures(result.results))) {
      store.remove();
    }
    return result;
  }

 private:
  // Returns a key of the options that all measurements depend on. Tasks, settings, match rates and engagement
  // curves are in the names of their own measurements, so that a suite with other runs keeps what is measured.
  std::string common_key() const {
    SuiteOptions common = options_;
    common.name.clear();
    common.task.clear();
    common.run.clear();
    common.match_rates.clear();
    common.engagement.clear();
    return options_hash(common);
  }

  // Returns the task of that name; an empty name is the first one's.
  const MeasuredTask& task_named(const std::string& wanted) const {
    const std::string& name = wanted.empty() ? options_.task.front().name : wanted;
    return *std::ranges::find_if(tasks_, [&](const auto& task) { return task.task->name == name; });
  }

  void measure(MeasuredTask& task, MeasurementStore& store) {
    MeasureTask request{.name = task.task->name,
                        .key = task.key,
                        .prompts = task.prompts,
                        .settings = {},
                        .max_new_tokens = task.max_new_tokens,
                        .timed = task.task->timed,
                        .batch_size = options_.batch_size};
    for (const auto& row : task.rows) {
      const bool known = std::any_of(request.settings.begin(), request.settings.end(),
                                     [&](const auto& setting) { return setting.label == row.settings.label; });
      if (!known) request.settings.push_back(row.settings);
    }
    std::vector<Measurement> counting = counting_pass(request, engine_, store);
    std::ranges::move(sampling_measurements(task, options_, engine_), std::back_inserter(counting));
    measure_missing(counting, store, context_, "evaluating " + request.name, "outputs");
    task.records = counted_records(request, store);
    remove_failed(failed_countings(request, store), "decoding", task);
    std::erase_if(request.settings, [&](const Setting& setting) { return !task.records.contains(setting.label); });
    measure_forced_alphas(options_, engine_, store, context_, task);
    remove_failed(time_task(request, options_, engine_, store, context_, task.records), "timing", task);
    score_hypotheses(task, engine_, store);
    calibrate(options_, engine_, task);
  }

  Results summarize() {
    Results results;
    results.suite = options_.name;
    results.environment = environment();
    results.environment.update(engine_.description());
    if (const auto load = other_load(before_)) results.environment["other_load"] = std::round(*load * 1000) / 1000;
    if (engine_.on_gpu()) results.environment["execution"] = execution_json(device_execution());
    results.options = options_to_json(options_);
    for (const auto& task : tasks_) results.tasks.push_back(summarize_task(task, options_, engine_));
    return results;
  }

  // Adds the scores of an engagement curve, or the failure of its metric.
  void add_curve(const EngagementPrompts& curve, const std::vector<MeasuredEngagement>& points, Results& results) {
    const auto message = failure_of([&] {
      results.engagement.push_back(engagement_result(curve, points, task_named(curve.task), options_, engine_));
    });
    if (!message) return;
    const auto task = std::ranges::find(results.tasks, curve.task, &TaskResult::name);
    task->failures.push_back({"engagement " + curve.table.name, "scoring", *message});
  }

  std::vector<EngagementPrompts> engagement_curves() const {
    std::vector<EngagementPrompts> curves;
    for (const EngagementTable& table : options_.engagement) {
      const MeasuredTask& task = task_named(table.task);
      const int64_t lines = table.lines > 0 ? std::min(table.lines, task.data.lines()) : task.data.lines();
      curves.push_back({.table = table,
                        .task = task.task->name,
                        .key = task.key,
                        .prompts = std::span(task.prompts).first(static_cast<size_t>(lines)),
                        .max_new_tokens = task.max_new_tokens,
                        .batch_size = options_.batch_size});
    }
    return curves;
  }

  std::vector<MatchRateResult> count_match_rates(MeasurementStore& store) {
    std::vector<MatchPrompts> tables;
    for (const auto& rates : options_.match_rates) {
      const MeasuredTask& task = task_named(rates.task);
      const auto lines = static_cast<size_t>(std::min(rates.prompts, task.data.lines()));
      tables.push_back({rates, task.task->name, task.key, std::span(task.prompts).first(lines), task.max_new_tokens});
    }
    return measure_match_rates(tables, engine_, store, context_);
  }

  const SuiteOptions& options_;
  const std::vector<Setting>& settings_;
  fs::path out_dir_;
  Engine& engine_;
  const SuiteContext& context_;
  std::vector<MeasuredTask> tasks_;  // choosing ones first
  std::optional<ProcessorTimes> before_ = processor_times();
};

}  // namespace

SuiteResult run_evaluation(const SuiteOptions& options, const fs::path& out_dir, Engine& engine,
                           const SuiteContext& context) {
  SuiteOptions suite = with_router_defaults(options);
  for (TaskOptions& task : suite.task) task.metric.name = task.metric.kind();
  Problems problems;
  validate_options(suite, "", problems);
  problems.throw_if_any();
  const std::vector<Setting> settings = with_repeated_baselines(expand_settings(suite));
  return Suite(suite, settings, out_dir, engine, context).run();
}

void throw_if_failed(const SuiteResult& result) {
  if (result.failures.empty()) return;
  Problem problem = result.failures.front();
  for (size_t i = 1; i < result.failures.size(); ++i) {
    problem.found +=
        fmt::format("\n{}: {}: {}", result.failures[i].where, result.failures[i].what, result.failures[i].found);
  }
  throw RunError(problem);
}

SuiteResult run_evaluation(const SuiteOptions& options, const fs::path& out_dir, const SuiteContext& context) {
  const auto engine = make_model_engine(options);
  return run_evaluation(options, out_dir, *engine, context);
}

}  // namespace draftsmith::evaluate
