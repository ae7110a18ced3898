#include "evaluate/tuning/tuning.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/logging.h"
#include "base/registry.h"
#include "evaluate/evaluation.h"
#include "evaluate/router_tuning.h"
#include "evaluate/suite/tasks.h"
#include "evaluate/tuning/forecast.h"
#include "evaluate/tuning/halving.h"
#include "evaluate/tuning/rung.h"

namespace draftsmith::evaluate {
namespace {

namespace fs = std::filesystem;

// Settings of a run that go on at least: one for each way that kept() looks at them. Where speed alone decides, all
// ways are the same.
constexpr size_t kFewestKept = 3;
constexpr size_t kFewestLosslessKept = 2;
constexpr int64_t kTheoryLines = 8;  // on which theory learns acceptance rates and step times

size_t fewest_kept(const TuningGroup& group) {
  return std::ranges::all_of(group.settings, &Setting::follows_target) ? kFewestLosslessKept : kFewestKept;
}

// Returns the task that the suite's runs choose on; empty if there is none, or several.
std::string usual_task(const SuiteOptions& suite) {
  std::set<std::string> tasks;
  for (const SettingGrid& run : suite.run) tasks.insert(run.choose_on);
  tasks.erase("");
  return tasks.size() == 1 ? *tasks.begin() : "";
}

// Returns the lines of the task. Errors: as load_task().
int64_t lines_of(const SuiteOptions& suite, const std::string& task) {
  return load_task(*std::ranges::find(suite.task, task, &TaskOptions::name)).lines();
}

// Moves the settings of these labels to the end of another list.
void move_settings(const std::vector<std::string>& labels, std::vector<Setting>& from, std::vector<Setting>& to) {
  const auto stays = [&](const Setting& one) { return std::ranges::find(labels, one.label) == labels.end(); };
  const auto moved = std::ranges::stable_partition(from, stays);
  to.insert(to.end(), moved.begin(), moved.end());
  from.erase(moved.begin(), moved.end());
}

class Tuning {
 public:
  Tuning(SuiteOptions suite, const TuningOptions& options, fs::path work, Engine& engine, const SuiteContext& context)
      : suite_(std::move(suite)), options_(options), work_(std::move(work)), engine_(engine), context_(context) {}

  TuningResult run() {
    result_.task = tuning_task(suite_, options_);
    for (TuningGroup& group : tuning_groups(suite_)) {
      if (group.settings.size() > 1) groups_.push_back(std::move(group));
    }
    size_t largest = 0;
    for (const TuningGroup& group : groups_) {
      largest = std::max(largest, group.settings.size());
      sizes_.push_back(std::ssize(group.settings));
    }
    const int64_t lines = lines_of(suite_, result_.task);
    const std::vector<int64_t> rungs =
        options_.full ? std::vector{lines}
                      : rung_lines(static_cast<int64_t>(largest), lines, options_.share, options_.fewest_lines);
    if (rungs.size() > 1) let_theory_rule_out(rungs.front());
    for (size_t i = 0; i < rungs.size(); ++i) {
      if (i + 1 == rungs.size()) leave_out_waiting();
      const RungResult measured = measure(i, rungs);
      if (i + 1 < rungs.size()) {
        keep_best(measured);
      } else {
        choose_winners(measured);
      }
    }
    return result_;
  }

 private:
  // Moves the settings that theory rules out from the groups to the waiting ones.
  void let_theory_rule_out(int64_t lines) {
    if (!options_.theory || options_.objective != Objective::kTokensPerSecond) return;
    RungRequest request{.suite = suite_, .task = result_.task, .lines = std::min(lines, kTheoryLines), .settings = {}};
    for (const TuningGroup& group : groups_) {
      if (group.settings.size() <= fewest_kept(group)) continue;
      std::ranges::copy_if(group.settings, std::back_inserter(request.settings),
                           [&](const Setting& one) { return is_predictable(one, suite_.batch_size); });
    }
    if (request.settings.empty()) return;
    forecast_ = forecast(request, work_, engine_);
    for (TuningGroup& group : groups_) {
      move_settings(ruled_out(prospects(group.settings), fewest_kept(group)), group.settings, group.waiting);
    }
  }

  void leave_out_waiting() {
    for (TuningGroup& group : groups_) {
      for (const Setting& setting : group.waiting) result_.ruled_out.push_back(setting.label);
      group.waiting.clear();
    }
  }

  // Returns the settings that have a prediction, with what a rung measured of them.
  std::vector<Prospect> prospects(const std::vector<Setting>& settings, const RungResult& measured = {}) const {
    std::vector<Prospect> prospects;
    for (const Setting& setting : settings) {
      const auto predicted = forecast_.find(setting.label);
      if (predicted == forecast_.end()) continue;
      const auto found = measured.settings.find(setting.label);
      prospects.push_back({.label = setting.label,
                           .predicted = predicted->second,
                           .gain = found == measured.settings.end() ? 0 : found->second.tokens_per_second});
    }
    return prospects;
  }

  RungResult measure(size_t index, const std::vector<int64_t>& rungs) {
    RungRequest request{.suite = suite_, .task = result_.task, .lines = rungs[index], .settings = {}};
    for (const TuningGroup& group : groups_) {
      request.settings.insert(request.settings.end(), group.settings.begin(), group.settings.end());
    }
    if (!context_.quiet) {
      log_info("rung {} of {}: {} settings on {} lines", index + 1, rungs.size(), request.settings.size(),
               request.lines);
    }
    RungResult measured = measure_rung(request, work_ / fmt::format("rung{}", index + 1), engine_, context_);
    for (const std::string& note : measured.notes) {
      result_.notes.push_back(fmt::format("rung {}: {}", index + 1, note));
    }
    add_rung(request, measured);
    return measured;
  }

  void add_rung(const RungRequest& request, const RungResult& measured) {
    std::vector<Contender> all;
    for (const TuningGroup& group : groups_) {
      const auto own = contenders(group, measured);
      all.insert(all.end(), own.begin(), own.end());
    }
    Rung& rung = result_.rungs.emplace_back(Rung{.lines = request.lines,
                                                 .settings = std::ssize(request.settings),
                                                 .best = {},
                                                 .measured_before = measured.measured_before});
    if (all.empty()) return;
    const Contender& best = all[winner(all, options_.max_drop)];
    rung.best = best.label;
    rung.drop = best.drop;
    rung.tokens_per_second = measured.settings.at(best.label).tokens_per_second;
  }

  // Returns the group's settings that the rung measured.
  std::vector<Contender> contenders(const TuningGroup& group, const RungResult& measured) const {
    std::vector<Contender> contenders;
    for (const Setting& setting : group.settings) {
      const auto found = measured.settings.find(setting.label);
      if (found == measured.settings.end()) continue;
      const RungSetting& one = found->second;
      const double gain = options_.objective == Objective::kTokensPerSecond ? one.tokens_per_second : -one.p95;
      contenders.push_back({setting.label, gain, one.drop, one.least_drop});
    }
    if (!contenders.empty() || !group.waiting.empty()) return contenders;
    throw RunError({.where = fmt::format("run[{}]", group.run),
                    .what = "all settings of the run failed",
                    .expected = "a setting that decodes task " + result_.task,
                    .found = result_.notes.empty() ? "" : result_.notes.back()});
  }

  void keep_best(const RungResult& measured) {
    for (TuningGroup& group : groups_) {
      std::vector<Prospect> known = prospects(group.settings, measured);
      std::erase_if(known, [](const Prospect& one) { return one.gain <= 0; });
      const auto back = brought_back(prospects(group.waiting), known);
      const size_t count =
          (group.settings.size() + static_cast<size_t>(options_.share) - 1) / static_cast<size_t>(options_.share);
      const auto labels = kept(contenders(group, measured), options_.max_drop, std::max(count, fewest_kept(group)));
      std::erase_if(group.settings,
                    [&](const Setting& setting) { return std::ranges::find(labels, setting.label) == labels.end(); });
      move_settings(back, group.waiting, group.settings);
    }
  }

  void choose_winners(const RungResult& measured) {
    for (size_t i = 0; i < groups_.size(); ++i) {
      const auto all = contenders(groups_[i], measured);
      const Contender& best = all[winner(all, options_.max_drop)];
      const RungSetting& numbers = measured.settings.at(best.label);
      const auto setting = std::ranges::find(groups_[i].settings, best.label, &Setting::label);
      result_.chosen.push_back({.run = groups_[i].run,
                                .setting = *setting,
                                .tokens_per_second = numbers.tokens_per_second,
                                .speedup = numbers.speedup,
                                .p95 = numbers.p95,
                                .drop = best.drop,
                                .allowed = best.drop <= options_.max_drop,
                                .of = sizes_[i]});
    }
  }

  SuiteOptions suite_;
  const TuningOptions& options_;
  fs::path work_;
  Engine& engine_;
  const SuiteContext& context_;
  std::vector<TuningGroup> groups_;  // with the settings that are still compared
  std::vector<int64_t> sizes_;       // of the groups at first
  Forecast forecast_;
  TuningResult result_;
};

}  // namespace

std::vector<TuningGroup> tuning_groups(const SuiteOptions& suite) {
  std::vector<TuningGroup> groups;
  for (size_t i = 0; i < suite.run.size(); ++i) {
    std::map<std::string, size_t> of_baseline;
    for (const Setting& setting : expand_grid(suite.run[i])) {
      const auto [place, added] = of_baseline.emplace(baseline_of(setting).label, groups.size());
      if (added) groups.push_back({.run = i, .settings = {}});
      groups[place->second].settings.push_back(setting);
    }
  }
  return groups;
}

std::string tuning_task(const SuiteOptions& suite, const TuningOptions& options) {
  std::vector<std::string> names;
  for (const TaskOptions& task : suite.task) names.push_back(task.name);
  const std::string name = options.task.empty() ? usual_task(suite) : options.task;
  if (name.empty()) {
    throw UserError({.where = "--on",
                     .what = "it is not known on which task the suite is tuned",
                     .expected = "--on with the name of a task of validation data, or one choose_on in all runs",
                     .found = "no such task, or several"});
  }
  const auto task = std::ranges::find(suite.task, name, &TaskOptions::name);
  if (task == suite.task.end()) throw UserError(unknown_name("task", name, names));
  if (suite.task.size() < 2) {
    throw UserError({.where = "task",
                     .what = "a tuned suite has no task to report on",
                     .expected = "another task beside " + name + ", which is validation data",
                     .found = "none",
                     .hint = "add the test data as a [[task]]"});
  }
  const auto groups = tuning_groups(suite);
  if (std::ranges::all_of(groups, [](const TuningGroup& group) { return group.settings.size() < 2; })) {
    throw UserError({.where = "run",
                     .what = "there is nothing to tune",
                     .expected = "a [[run]] with a list of several values, such as fallback = [0.5, 0.7]",
                     .found = "single settings"});
  }
  // The suite's own checks hold for the task that all runs choose on.
  SuiteOptions checked = suite;
  for (SettingGrid& run : checked.run) {
    if (expand_grid(run).size() > 1) run.choose_on = name;
    run.max_drop = {options.max_drop};
  }
  Problems problems;
  validate_options(checked, "", problems);
  problems.throw_if_any();
  return name;
}

TuningResult tune(const SuiteOptions& suite, const TuningOptions& options, const fs::path& work, Engine& engine,
                  const SuiteContext& context) {
  return Tuning(with_router_defaults(suite), options, work, engine, context).run();
}

}  // namespace draftsmith::evaluate
