#include "evaluate/suite/suite_checks.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "evaluate/suite/setting_checks.h"
#include "evaluate/suite/setting_grid.h"

namespace draftsmith::evaluate {
namespace {

template <typename Items>
std::vector<std::string> names_of(const Items& items) {
  std::vector<std::string> names;
  for (const auto& item : items) names.push_back(item.name);
  return names;
}

void check_unique(const std::vector<std::string>& names, const std::string& where, Problems& problems,
                  const std::string& hint = "") {
  std::set<std::string> seen;
  for (const auto& name : names) {
    if (seen.insert(name).second) continue;
    problems.add({where, "two have the same name", "different names", name, hint});
  }
}

void check_known(const std::string& name, const std::vector<std::string>& known, const std::string& where,
                 Problems& problems) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  const std::string near = nearest(name, known);
  problems.add({where, "there is nothing of this name", fmt::format("one of: {}", fmt::join(known, ", ")), name,
                near.empty() ? "" : "did you mean '" + near + "'?"});
}

void check_tasks(const std::vector<std::string>& tasks, const std::string& where, Problems& problems) {
  if (tasks.empty()) problems.add({where, "a suite needs a task", "at least one [[task]]", "none", ""});
  std::vector<std::string> files;
  for (const auto& task : tasks) files.push_back(file_safe(task));
  check_unique(files, where, problems, "tasks name files, where all but letters, digits, '.', '-' and '_' becomes '_'");
}

void check_drafters(const std::vector<std::string>& drafters, const std::string& where, Problems& problems) {
  check_unique(drafters, where, problems);
  if (std::find(drafters.begin(), drafters.end(), "target") == drafters.end()) return;
  problems.add({where, "a drafter has the name that stands for the suite's own model", "another name", "target", ""});
}

// Settings are chosen by what they lose, those that lose nothing by their speed alone.
void check_scored(const std::vector<TaskOptions>& tasks, const SettingGrid& run, const std::string& where,
                  Problems& problems) {
  const auto settings = expand_run(run);
  if (std::all_of(settings.begin(), settings.end(), [](const auto& one) { return one.equals_greedy(); })) return;
  for (const TaskOptions& task : tasks) {
    if (task.name != run.choose_on || task.metric.name != "none") continue;
    problems.add({where, "settings are chosen by their quality, which this task does not measure",
                  "a task with a metric, or runs that are lossless at temperature 0", "metric none", ""});
  }
}

// Methods around a Tandem secondary draft with nothing else.
void check_tandem(const SettingGrid& run, const std::vector<infer::DrafterOptions>& drafters, const std::string& where,
                  Problems& problems) {
  infer::DecodeOptions decode;
  decode.method = run.method;
  if (!decode.needs_tandem()) return;
  for (const infer::DrafterOptions& drafter : drafters) {
    const bool asked = std::find(run.drafter.begin(), run.drafter.end(), drafter.name) != run.drafter.end();
    if (!asked || std::holds_alternative<infer::TandemSpec>(drafter.spec())) continue;
    problems.add({where, "method " + run.method + " drafts with a Tandem secondary",
                  "a [[drafter]] with tandem = its directory", drafter.name + " = " + infer::to_text(drafter.spec()),
                  ""});
  }
}

// Returns the names of the models that can decode alone.
std::vector<std::string> decoding_models(const SuiteOptions& options) {
  std::vector<std::string> models;
  for (const auto& drafter : options.drafter) {
    if (std::holds_alternative<infer::ModelSpec>(drafter.spec())) models.push_back(drafter.name);
  }
  models.emplace_back("target");
  return models;
}

// Models and tasks of match rates are declared, and their files have different names.
void check_rates(const SuiteOptions& options, const std::string& where, Problems& problems) {
  std::vector<std::string> names;
  const std::vector<std::string> models = decoding_models(options);
  for (const MatchRateTable& rates : options.match_rates) {
    names.push_back(file_safe(rates.name));
    check_known(rates.model, models, where + ".model", problems);
    if (!rates.task.empty()) check_known(rates.task, names_of(options.task), where + ".task", problems);
  }
  check_unique(names, where + ".name", problems, "several need a name each, by which their files are told apart");
}

// Step times and alpha are measured once for each name of what drafts: two things must not share one.
void check_drafting(const std::vector<Setting>& runs, const std::vector<infer::DrafterOptions>& drafters,
                    const std::string& where, Problems& problems) {
  std::map<std::string, std::string> sources;
  std::set<std::string> clashes;
  for (const Setting& run : runs) {
    const auto spec = drafter_spec(run, drafters);
    const std::string source = run.model + " " + (spec ? infer::to_text(*spec) : "") + " " + run.decode.exits.string();
    if (sources.emplace(run.drafter_label(), source).first->second != source) clashes.insert(run.drafter_label());
  }
  clashes.erase("");  // runs without a drafter
  for (const std::string& name : clashes) {
    problems.add({where, "two things that draft have the same name in results", "different ones", name,
                  "early-exit drafts with exitN, N its exit_layer: call the drafter something else"});
  }
}

// Labels are unique, those of chosen settings too, and runs that are chosen among together want the same choices.
void check_labels(const SuiteOptions& options, const std::string& where, Problems& problems) {
  std::vector<std::string> labels;
  std::map<std::string, Setting> groups;
  std::set<std::string> conflicts;
  const std::vector<Setting> runs = expand_runs(options);
  check_drafting(runs, options.drafter, where, problems);
  for (const Setting& run : runs) {
    labels.push_back(run.label);
    if (run.choose_on.empty()) continue;
    const auto [first, added] = groups.emplace(run.group, run);
    if (added) {
      for (const double max_drop : run.max_drop) labels.push_back(chosen_label(run.group, max_drop));
    } else if (run.choose_on != first->second.choose_on || run.max_drop != first->second.max_drop) {
      conflicts.insert(run.group);
    }
  }
  for (const auto& group : conflicts) {
    problems.add({where, "two runs of the same kind choose in different ways",
                  "one choose_on and one max_drop for all settings of '" + group + "'", "different ones",
                  "give one of them another 'name'"});
  }
  check_unique(labels, where, problems);
}

}  // namespace

void check_task(const TaskOptions& task, const std::string& where, Problems& problems) {
  if (task.source.empty() == task.jsonl.empty()) {
    problems.add({where, "a task reads either text files or a jsonl file", "one of source and jsonl",
                  task.source.empty() ? "neither" : "both", ""});
  }
  const char* unscored = "prompts that are not scored need metric = { name = \"none\" }";
  const bool scored = task.metric.name != "none";
  if (scored && !task.source.empty() && task.references.empty()) {
    problems.add(
        {where + ".references", "a task needs references to be scored", "at least one file", "none", unscored});
  }
  if (scored && !task.jsonl.empty() && task.reference_fields.empty()) {
    problems.add(
        {where + ".reference_fields", "a task needs references to be scored", "at least one field", "none", unscored});
  }
  if (!scored && !task.references.empty()) {
    problems.add({where + ".references", "a task without a metric scores nothing", "no references, or a metric",
                  fmt::format("{} files", task.references.size()), ""});
  }
  if (task.ids && !task.suffix.empty()) {
    problems.add({where + ".suffix", "ids are taken as they are", "no suffix, or text", task.suffix, ""});
  }
  if (!task.separator.empty() && (task.source.empty() || scored)) {
    problems.add({where + ".separator", "separators divide text without references", "source, and metric none",
                  task.source.empty() ? "no source" : "metric " + task.metric.name, ""});
  }
}

void check_suite(const SuiteOptions& options, const std::string& where, Problems& problems) {
  const std::string dot = where.empty() ? "" : where + ".";
  const auto tasks = names_of(options.task);
  const auto drafters = names_of(options.drafter);
  check_tasks(tasks, dot + "task", problems);
  check_drafters(drafters, dot + "drafter", problems);
  const std::vector<std::string> models = decoding_models(options);
  for (size_t i = 0; i < options.run.size(); ++i) {
    const SettingGrid& run = options.run[i];
    const std::string at = fmt::format("{}run[{}]", dot, i);
    for (const auto& name : run.drafter) check_known(name, drafters, at + ".drafter", problems);
    check_tandem(run, options.drafter, at + ".drafter", problems);
    check_known(run.model, models, at + ".model", problems);
    if (!run.choose_on.empty()) {
      check_known(run.choose_on, tasks, at + ".choose_on", problems);
      check_scored(options.task, run, at + ".choose_on", problems);
    }
    check_run(run, options.drafter, at, problems);
  }
  check_rates(options, dot + "match_rates", problems);
  try {
    check_labels(options, dot + "run", problems);
  } catch (const UserError& error) {
    for (Problem problem : error.problems()) {
      problem.where = dot + problem.where;
      problems.add(std::move(problem));
    }
  }
}

}  // namespace draftsmith::evaluate
