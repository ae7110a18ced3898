#include "evaluate/task_preparation.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/sha256.h"
#include "evaluate/suite/forced_texts.h"
#include "evaluate/suite/tasks.h"

namespace draftsmith::evaluate {
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

}  // namespace draftsmith::evaluate
