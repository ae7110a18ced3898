#include "evaluate/evaluation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/files.h"
#include "base/json.h"
#include "base/logging.h"
#include "base/signals.h"
#include "base/toml.h"
#include "data/datasets/datasets.h"
#include "evaluate/measure/machine_load.h"
#include "evaluate/measure/measured_task.h"
#include "evaluate/measure/measurement_store.h"
#include "evaluate/report/report.h"
#include "evaluate/results/summary.h"
#include "evaluate/suite/setting_grid.h"
#include "evaluate/suite/tasks.h"

namespace draftsmith::evaluate {
namespace {

namespace fs = std::filesystem;

// ---- Reading of a suite

// Puts the data folder in place of "$DATA" at the beginning of texts. Returns what was written, by the paths.
std::map<std::string, std::string> find_data(toml::table& table) {
  std::map<std::string, std::string> written;
  for_each_string(table, [&](toml::value<std::string>& value) {
    const std::string text = value.get();
    value = data::real_path(text);
    written[value.get()] = text;
  });
  return written;
}

// Reports the suite's paths that do not exist.
void check_files(const fs::path& file, const toml::table& table, const SuiteOptions& options,
                 const std::map<std::string, std::string>& written, Problems& problems) {
  const auto listed = option_paths(options);
  const std::set<fs::path> paths(listed.begin(), listed.end());
  std::set<std::string> reported;
  for_each_string(table, [&](const toml::value<std::string>& value) {
    if (!paths.contains(value.get()) || fs::exists(value.get()) || !reported.insert(value.get()).second) return;
    const std::string where = location_of(value);
    problems.add(data::missing_path(written.at(value.get()), where.empty() ? file.string() : where));
  });
}

// Reads the tasks' files, so that missing references and fields are found before a model is loaded.
void check_task_files(const SuiteOptions& options, Problems& problems) {
  for (const TaskOptions& task : options.task) {
    try {
      load_task(task);
    } catch (const UserError& error) {
      problems.add_all(error.problems());
    }
  }
}

}  // namespace

SuiteOptions load_suite(const fs::path& file, const std::vector<std::string>& overrides) {
  Problems problems;
  toml::table table = load_toml(file);
  data::list_tasks(table);
  apply_overlays(table, overrides, problems);
  data::fill_in_dataset_tasks(table, problems);
  const auto written = find_data(table);
  auto options = parse_options<SuiteOptions>(table, "", problems);
  check_files(file, table, options, written, problems);
  problems.throw_if_any();
  if (!table.contains("name")) options.name = file.stem().string();
  check_task_files(options, problems);
  problems.throw_if_any();
  return options;
}

namespace {

// ---- Files of an evaluation

void add_seconds(const std::string& prefix, const std::vector<infer::PhaseSeconds>& times,
                 nlohmann::ordered_json& json) {
  json[prefix + "seconds"] = nlohmann::ordered_json::array();
  json[prefix + "decode_seconds"] = nlohmann::ordered_json::array();
  for (const infer::PhaseSeconds& seconds : times) {
    json[prefix + "seconds"].push_back(seconds.total());
    json[prefix + "decode_seconds"].push_back(seconds.decode());
  }
}

// Returns a JSON object a line for each line and setting of the task: `task`, `run` (the setting's own name, also where
// a choice gave it another), `line` (from 0), `turn`, `tokens`, and the lists `seconds` and `decode_seconds` with one
// number a repetition, empty where the line was not timed. `baseline_seconds` and `baseline_decode_seconds` are the
// baseline's beside them, absent from baselines. Scored tasks have `statistics`, whose sums the metric scores
// (metrics::LineStatistics).
std::string lines_jsonl(const MeasuredTask& task) {
  std::string text;
  for (const auto& [label, records] : task.records) {
    const auto statistics = task.statistics.find(label);
    for (size_t line = 0; line < records.size(); ++line) {
      nlohmann::ordered_json json{{"task", task.task->name},
                                  {"run", label},
                                  {"line", line},
                                  {"turn", records[line].turn},
                                  {"tokens", records[line].tokens()}};
      add_seconds("", records[line].repetitions, json);
      if (!records[line].baseline.empty()) add_seconds("baseline_", records[line].baseline, json);
      if (statistics != task.statistics.end() && statistics->second.width > 0) {
        json["statistics"] = statistics->second.line(static_cast<int64_t>(line));
      }
      if (records[line].failure) json["failure"] = *records[line].failure;
      text += json.dump() + "\n";
    }
  }
  return text;
}

// Writes results, report, hypotheses and lines to the directory. results.json comes last.
void write_evaluation(const Results& results, const std::vector<MeasuredTask>& tasks, const fs::path& out_dir) {
  make_directories(out_dir / "hyp");
  for (const auto& task : tasks) {
    const auto write = [&](const std::string& row, const std::string& label) {
      std::string lines;
      for (const auto& line : task.hypotheses.at(label)) lines += line + "\n";
      write_file_atomic(out_dir / hypotheses_file(*task.task, row), lines);
    };
    for (const Setting& setting : task.settings) {
      if (task.has_row(setting)) write(setting.label, setting.label);
    }
    for (const ChosenSetting& chosen : task.chosen) {
      write(chosen_label(task.setting(chosen.setting).group, chosen.max_drop), chosen.setting);
    }
  }
  std::string lines;
  for (const auto& task : tasks) lines += lines_jsonl(task);
  write_file_atomic(out_dir / "lines.jsonl", lines);
  write_file_atomic(out_dir / "results.csv", results_csv(results));
  write_file_atomic(out_dir / "report.html", report_html(results));
  write_json(out_dir / "results.json", to_json(results));
}

// ---- Running of a suite

double to_thousandths(double value) {
  return std::round(value * 1000) / 1000;
}

class Suite {
 public:
  Suite(const SuiteOptions& options, fs::path out_dir, Engine& engine, int idle_minutes)
      : options_(options),
        settings_(with_repeated_baselines(expand_settings(options))),
        out_dir_(std::move(out_dir)),
        engine_(engine),
        idle_minutes_(idle_minutes) {}

  SuiteResult run() {
    const LongWork work(kHowToGoOn);
    check();
    for (const bool chooses : {true, false}) {
      for (const auto& task : options_.task) {
        if (is_choosing(task.name) == chooses) add_task(task, chooses);
      }
    }
    std::ranges::for_each(tasks_, try_command);
    make_directories(out_dir_);
    MeasurementStore store(out_dir_, fmt::format("{} {} {}", common_key(), engine_.fingerprint(), cpu_name()));
    if (store.resumed() > 0) log_info("resuming with {} measurements in {}", store.resumed(), out_dir_.string());
    if (idle_minutes_ > 0) wait();
    if (store.resumed() == 0) before_ = processor_times();  // of an earlier session nothing is known
    for (auto& task : tasks_) {
      if (!task.chooses) add_chosen(settings_, tasks_, task);
      measure(task, store);
    }
    SuiteResult result;
    result.results = summarize();
    result.table = results_table(result.results);
    write_evaluation(result.results, tasks_, out_dir_);
    result.failures = failed_checks(result.results, (out_dir_ / "results.json").string());
    if (result.failures.empty()) store.remove();
    return result;
  }

 private:
  // Checks all settings and tables, before anything is run or written. Errors: UserError with all problems.
  void check() {
    Problems problems;
    for (const auto& setting : settings_) engine_.check(setting, problems);
    for (size_t i = 0; i < options_.match_rates.size(); ++i) {
      engine_.check(options_.match_rates[i], fmt::format("match_rates[{}]", i), problems);
    }
    for (size_t i = 0; i < options_.engagement.size(); ++i) {
      engine_.check(options_.engagement[i], fmt::format("engagement[{}]", i), problems);
    }
    problems.throw_if_any();
  }

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
    measured.batch_size = options_.batch_size;
    for (size_t line = 0; line < measured.data.sources.size(); ++line) encode(measured, line);
    // The names of the task's files say nothing of their content.
    const std::string data = nlohmann::json{measured.prompts, measured.data.references}.dump();
    TaskOptions unscored = task;  // how outputs are scored changes none of their measurements
    unscored.metric = {};
    measured.key = task.name + " " + sha256(options_hash(unscored) + data);
    const auto forced = static_cast<size_t>(std::min(options_.forced_lines, measured.data.lines()));
    measured.forced_texts =
        forced_texts(task, measured.data, std::span(measured.prompts).first(forced), measured.max_new_tokens, engine_);
    for (const auto& setting : settings_) {
      const bool baseline =
          setting.choose_on.empty() && (setting.is_greedy_baseline() || !chooses || is_needed_baseline(setting, task));
      if (baseline || setting.choose_on == task.name) measured.settings.push_back(setting);
    }
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

  // Returns a key of the options that all measurements depend on. Tasks, settings, match rates and engagement
  // curves are in the names of their own measurements, so that a suite with other runs keeps what is measured.
  std::string common_key() const {
    SuiteOptions common = options_;
    common.name.clear();
    common.device.clear();  // the engine says which this and the threads are
    common.threads = 0;
    common.task.clear();
    common.run.clear();
    common.match_rates.clear();
    common.engagement.clear();
    common.precision.reset();  // says only which rounds are timed; so do the next three
    common.max_minutes.reset();
    common.spread_minutes.reset();
    const SuiteOptions usual;
    common.repetitions = usual.repetitions;
    common.calibrate = usual.calibrate;  // results of this and the next two are never stored
    common.forced_lines = usual.forced_lines;
    common.resamples = usual.resamples;
    return options_hash(common);
  }

  // Returns the task of that name; an empty name is the first one's.
  const MeasuredTask& task_named(const std::string& wanted) const {
    const std::string& name = wanted.empty() ? options_.task.front().name : wanted;
    return *std::ranges::find_if(tasks_, [&](const auto& task) { return task.task->name == name; });
  }

  void measure(MeasuredTask& task, MeasurementStore& store) {
    count_outputs(engine_, store, task);
    measure_forced_alphas(options_, engine_, task);
    calibrate(options_, engine_, task);
    time_settings(options_, engine_, store, task);
    calibrate(options_, engine_, task);  // a machine's pace differs between minutes
    score_hypotheses(task, engine_);
  }

  void wait() const {
    const auto load = wait_for_idle(idle_minutes_);
    if (!load) return log_warning("this system does not tell how busy it is (/proc/stat): nothing was waited for");
    log_info("other processes use {:.0f} % of the processors: the evaluation begins", 100 * *load);
  }

  Results summarize() {
    Results results;
    results.suite = options_.name;
    results.environment = environment();
    results.environment.update(engine_.description());
    add_load(results);
    results.options = options_to_json(options_);
    Progress work({.title = "summarizing"}, kHowToGoOn);
    for (const auto& task : tasks_) results.tasks.push_back(summarize_task(task, options_, engine_));
    for (const auto& table : options_.match_rates) {
      add_table("match rates", table, results, [&] { results.match_rates.push_back(count_match_rates(table)); });
    }
    for (const auto& table : options_.engagement) {
      add_table("engagement", table, results, [&] {
        results.engagement.push_back(measure_engagement(table, task_named(table.task), options_, engine_));
      });
    }
    return results;
  }

  // Adds how much of the machine others used, and by how much rows became slower: the least and the most.
  void add_load(Results& results) const {
    if (const auto load = other_load(before_, processor_times())) {
      results.environment["other_load"] = to_thousandths(*load);
    }
    std::vector<double> slower;
    for (const MeasuredTask& task : tasks_) {
      for (const auto& [label, records] : task.records) {
        if (const auto own = slowdown(records)) slower.push_back(to_thousandths(*own));
      }
    }
    if (slower.empty()) return;
    results.environment["slowdown"] = {{"least", std::ranges::min(slower)}, {"most", std::ranges::max(slower)}};
  }

  MatchRateResult count_match_rates(const MatchRateTable& table) {
    work_point();
    const MeasuredTask& task = task_named(table.task);
    const int64_t lines = std::min(table.prompts, task.lines());
    return {.name = table.name,
            .task = task.task->name,
            .model = table.model,
            .prompts = lines,
            .cells = engine_.match_rates(table, std::span(task.prompts).first(static_cast<size_t>(lines)),
                                         task.max_new_tokens)};
  }

  // Adds a table beside the settings, or its failure.
  void add_table(const std::string& what, const auto& table, Results& results, const std::function<void()>& add) {
    const auto message = failure_of(add);
    if (!message) return;
    const auto task = std::ranges::find(results.tasks, task_named(table.task).task->name, &TaskResult::name);
    task->failures.push_back({what + " " + table.name, "scoring", *message});
  }

  const SuiteOptions& options_;
  const std::vector<Setting> settings_;
  fs::path out_dir_;
  Engine& engine_;
  const int idle_minutes_;
  std::vector<MeasuredTask> tasks_;       // choosing ones first
  std::optional<ProcessorTimes> before_;  // when measuring began
};

}  // namespace

SuiteResult run_evaluation(const SuiteOptions& options, const fs::path& out_dir, Engine& engine, int idle_minutes) {
  SuiteOptions suite = with_router_defaults(options);
  for (TaskOptions& task : suite.task) task.metric.name = task.metric.kind();
  return Suite(suite, out_dir, engine, idle_minutes).run();
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

SuiteResult run_evaluation(const SuiteOptions& options, const fs::path& out_dir, int idle_minutes) {
  const auto engine = make_model_engine(options);
  return run_evaluation(options, out_dir, *engine, idle_minutes);
}

}  // namespace draftsmith::evaluate
