#include "infer/evaluation_checks.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "infer/drafters/prompt_lookup_drafter.h"
#include "infer/evaluation_runs.h"
#include "infer/part_options.h"
#include "infer/parts.h"

namespace draftsmith::infer {
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
void check_scored(const std::vector<EvaluationTask>& tasks, const EvaluationRun& run, const std::string& where,
                  Problems& problems) {
  const auto settings = expand_run(run);
  if (std::all_of(settings.begin(), settings.end(), [](const auto& one) { return one.equals_greedy(); })) return;
  for (const EvaluationTask& task : tasks) {
    if (task.name != run.choose_on || task.metric.name != "none") continue;
    problems.add({where, "settings are chosen by their quality, which this task does not measure",
                  "a task with a metric, or runs that are lossless at temperature 0", "metric none", ""});
  }
}

// Prompt look-up needs no file to say which parts it fits.
void check_lookup(const RunSettings& run, const std::string& where, Problems& problems) {
  Problems found;
  validate_parts(make_parts(run.decode, std::make_unique<PromptLookupDrafter>(kLongestLookup)), run.temperature(),
                 found);
  for (Problem problem : found.list()) {
    problem.where = where + ", " + problem.where;
    problems.add(std::move(problem));
  }
}

// Window rules that need more than options. False when the parts cannot be made to be checked further.
bool check_window(const RunSettings& run, bool lookup, const std::string& where, Problems& problems) {
  const std::string rule = run.decode.window_rule_name();
  if (rule == "oracle" && run.temperature() != 0) {
    problems.add({where + ".temperature",
                  "window oracle replays where greedy drafts were rejected, and sampled ones are rejected elsewhere",
                  "temperature 0", fmt::format("{}", run.temperature()), "use another window rule to sample"});
  }
  if (rule == "oracle") {
    const auto acceptance = make_acceptance_rule(run.decode.acceptance_name(), run.decode);
    check_replay(acceptance->traits(), where, problems);
  }
  if (rule == "router" && run.decode.router.empty()) {
    problems.add({where + ".router", "window router asks a router, and none was given", "the directory of a router",
                  "none", "a router is made by a stage of kind router"});
  } else if (rule != "router" && !run.decode.router.empty()) {
    problems.add({where + ".window_rule", "a router is asked by the window router alone", "router",
                  rule.empty() ? "none" : rule, "set window_rule = \"router\", or leave router out"});
  }
  const bool needs_model = rule == "router" || rule == "oracle";
  if (needs_model && lookup) {
    problems.add({where, "window " + rule + " is for drafters that are models", "a model or a Tandem secondary",
                  "prompt look-up", "use the window fixed"});
  }
  return !needs_model || !lookup;
}

// What can be said of a setting without its models. `lookup`: its drafter is prompt look-up.
void check_setting(const RunSettings& run, bool lookup, const std::string& where, Problems& problems) {
  const size_t before = problems.list().size();
  validate_options(run.decode, where, problems);
  if (run.decode.drafts() == run.drafter.empty()) {
    problems.add({where, "the method and the drafter don't fit together",
                  (run.decode.drafts() ? "a drafter, for method " : "no drafter, for method ") + run.method(),
                  run.drafter.empty() ? "none" : run.drafter, ""});
  }
  if (problems.list().size() != before || !run.decode.drafts()) return;
  if (!check_window(run, lookup, where, problems)) return;
  if (lookup) return check_lookup(run, where, problems);
  if (run.temperature() == 0) return;
  const auto acceptance = make_acceptance_rule(run.decode.acceptance_name(), run.decode)->traits();
  if (!acceptance.greedy_only) return;
  problems.add({where, "acceptance " + acceptance.name + " takes the most likely token and samples nothing",
                "temperature 0", fmt::format("temperature {}", run.temperature()),
                "use the acceptance rejection to sample"});
}

// Options given to a run that none of its parts reads would make settings of different names that are all the same.
void check_unused(const EvaluationRun& run, const std::string& where, Problems& problems) {
  const std::map<std::string, bool> given{{"window", !run.window.empty()},
                                          {"schedule", !run.schedule.empty()},
                                          {"confidence", !run.confidence.empty()},
                                          {"fallback", !run.fallback.empty()},
                                          {"max_draft", !run.max_draft.empty()},
                                          {"max_entropy", !run.max_entropy.empty()},
                                          {"threshold", !run.threshold.empty()},
                                          {"rollback", !run.rollback.empty()},
                                          {"rollback_rule", !run.rollback_rule.empty()},
                                          {"free_token", !run.free_token}};
  const DecodeOptions decode = expand_run(run).front().decode;
  for (const PartOption& option : part_options(decode)) {
    const auto found = given.find(option.name);
    if (option.used || found == given.end() || !found->second) continue;
    problems.add({where + "." + option.name, "this run does not read the option", option.readers,
                  decode.drafts() ? fmt::format("method {} with window_rule {}, acceptance {}", run.method,
                                                decode.window_rule_name(), decode.acceptance_name())
                                  : "method " + run.method,
                  "leave " + option.name + " out"});
  }
}

// Every point of a run's grid, found wrong before a recipe has trained for hours and comes to its evaluation.
void check_run(const EvaluationRun& run, const std::set<std::string>& lookups, const std::string& where,
               Problems& problems) {
  Problems found;
  for (const RunSettings& point : expand_run(run)) check_setting(point, lookups.contains(point.drafter), where, found);
  if (found.list().empty()) check_unused(run, where, found);
  if (!run.choose_on.empty() && run.max_drop.empty()) {
    found.add({where + ".max_drop", "with choose_on a setting is chosen for each value", "at least one value", "none",
               "leave choose_on out to run the whole grid on every task"});
  }
  std::set<std::string> seen;  // the points share their mistakes
  for (const Problem& problem : found.list()) {
    if (seen.insert(to_string(problem)).second) problems.add(problem);
  }
}

// Methods around a Tandem secondary draft with nothing else.
void check_tandem(const EvaluationRun& run, const std::vector<EvaluationDrafter>& drafters, const std::string& where,
                  Problems& problems) {
  DecodeOptions decode;
  decode.method = run.method;
  if (!decode.needs_tandem()) return;
  for (const EvaluationDrafter& drafter : drafters) {
    const bool asked = std::find(run.drafter.begin(), run.drafter.end(), drafter.name) != run.drafter.end();
    if (!asked || !drafter.tandem.empty()) continue;
    problems.add({where, "method " + run.method + " drafts with a Tandem secondary",
                  "a [[drafter]] with tandem = its directory", drafter.name + " = " + drafter.source().text(), ""});
  }
}

// Labels are unique, those of chosen settings too, and runs that are chosen among together want the same choices.
void check_labels(const EvaluationOptions& options, const std::string& where, Problems& problems) {
  std::vector<std::string> labels;
  std::map<std::string, RunSettings> groups;
  std::set<std::string> conflicts;
  for (const RunSettings& run : expand_runs(options)) {
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

void check_task(const EvaluationTask& task, const std::string& where, Problems& problems) {
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

void check_drafter_source(const EvaluationDrafter& drafter, const std::string& where, Problems& problems) {
  const int given = (drafter.model.empty() ? 0 : 1) + (drafter.tandem.empty() ? 0 : 1) +
                    (drafter.ngram.empty() ? 0 : 1) + (drafter.lookup ? 1 : 0);
  if (given == 1) return;
  problems.add({where, "a drafter is one thing", "one of model, tandem, ngram and lookup = true",
                given == 0 ? "none of them" : "several of them", ""});
}

void check_suite(const EvaluationOptions& options, const std::string& where, Problems& problems) {
  const std::string dot = where.empty() ? "" : where + ".";
  const auto tasks = names_of(options.task);
  const auto drafters = names_of(options.drafter);
  check_tasks(tasks, dot + "task", problems);
  check_drafters(drafters, dot + "drafter", problems);
  std::vector<std::string> models;  // what can decode alone
  std::set<std::string> lookups;
  for (const auto& drafter : options.drafter) {
    if (!drafter.model.empty()) models.push_back(drafter.name);
    if (drafter.lookup) lookups.insert(drafter.name);
  }
  models.emplace_back("target");
  for (size_t i = 0; i < options.run.size(); ++i) {
    const EvaluationRun& run = options.run[i];
    const std::string at = fmt::format("{}run[{}]", dot, i);
    for (const auto& name : run.drafter) check_known(name, drafters, at + ".drafter", problems);
    check_tandem(run, options.drafter, at + ".drafter", problems);
    check_known(run.model, models, at + ".model", problems);
    if (!run.choose_on.empty()) {
      check_known(run.choose_on, tasks, at + ".choose_on", problems);
      check_scored(options.task, run, at + ".choose_on", problems);
    }
    check_run(run, lookups, at, problems);
  }
  try {
    check_labels(options, dot + "run", problems);
  } catch (const UserError& error) {
    for (Problem problem : error.problems()) {
      problem.where = dot + problem.where;
      problems.add(std::move(problem));
    }
  }
}

}  // namespace draftsmith::infer
