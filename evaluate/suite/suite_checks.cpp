// Checks of a suite that need no model.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "data/datasets/datasets.h"
#include "data/text/readers.h"
#include "evaluate/suite/setting_grid.h"
#include "evaluate/suite/suite_options.h"
#include "evaluate/suite/tasks.h"
#include "infer/acceptance/acceptance_rules.h"
#include "infer/generator.h"
#include "infer/windows/window_rules.h"

namespace draftsmith::evaluate {
namespace {

// ---- Checks of one [[run]]

// Returns the setting's drafter, one of the suite's `drafters` or the method's own; nothing for an unknown name.
std::optional<infer::DrafterSpec> drafter_spec(const Setting& setting,
                                               const std::vector<infer::DrafterOptions>& drafters) {
  if (setting.decode.drafts_inside()) {
    return infer::DrafterSpec{infer::DrafterKind::kExit, {}, setting.decode.exit_layer.value_or(0)};
  }
  const auto found = std::ranges::find(drafters, setting.drafter, &infer::DrafterOptions::name);
  return found == drafters.end() ? std::nullopt : std::optional(found->spec());
}

// Returns whether the setting's method and drafter belong together, and adds a problem if not.
bool check_drafter(const Setting& setting, const std::string& where, Problems& problems) {
  const bool wants_drafter = setting.decode.drafts() && !setting.decode.drafts_inside();
  if (wants_drafter != setting.drafter.empty()) return true;
  problems.add({where, "the method and the drafter don't fit together",
                (wants_drafter ? "a drafter, for method " : "no drafter, for method ") + setting.method(),
                setting.drafter.empty() ? "none" : setting.drafter,
                setting.decode.drafts_inside() ? "its drafter is the model's own first layers: give exit_layer" : ""});
  return false;
}

// Adds the problems of parts that make no sense together, as far as they are known before models are loaded.
void check_parts(const Setting& setting, const infer::DrafterSpec& drafter, const std::string& where,
                 Problems& problems) {
  const infer::WindowTraits window = infer::window_traits(setting.decode);
  Problems found;
  infer::validate_parts({infer::traits_of(drafter.kind), window, infer::acceptance_traits(setting.decode),
                         setting.decode.copied_behind()},
                        setting.temperature(), found);
  problems.add_all(found.list(), where + ", ");
  if (window.asks_router && setting.decode.router.empty()) problems.add(infer::missing_router(where));
}

// Adds the problems of a setting that are known before models are loaded.
void check_setting(const Setting& setting, const std::optional<infer::DrafterSpec>& drafter, const std::string& where,
                   Problems& problems) {
  Problems options;
  validate_options(setting.decode, where, options);
  problems.add_all(options.list());
  if (infer::decoding_methods().find(setting.method()) == nullptr || !check_drafter(setting, where, problems)) return;
  if (options.list().empty() && setting.decode.drafts() && drafter) check_parts(setting, *drafter, where, problems);
}

// Adds a problem for each option that no part of the grid reads. Settings that differ only in it would be the same.
void check_unused(const SettingGrid& grid, const DecodeOptions& decode, const std::string& where, Problems& problems) {
  static const DecodeOptions kDefaults;
  const std::vector<Field>& fields = OptionLists<DecodeOptions>::fields().all();
  for (size_t i = 0; i < fields.size(); ++i) {
    const Field& field = fields[i];
    const bool given = grid.lists.given(i) || field_json(field, &grid.decode) != field_json(field, &kDefaults);
    if (!given || decode.reads(field)) continue;
    problems.add({where + "." + field.name, "this run does not read the option",
                  fmt::format("{} {}", field.read_by->part, fmt::join(field.read_by->names, ", ")),
                  decode.drafts() ? fmt::format("method {} with window_rule {}, acceptance {}", decode.method,
                                                decode.window_rule_name(), decode.acceptance_name())
                                  : "method " + decode.method,
                  "leave " + field.name + " out"});
  }
}

// Adds a problem for exits that nothing reads. Unlike the options in check_unused(), drafters may read them too.
void check_exits(const std::vector<Setting>& settings, const std::vector<infer::DrafterOptions>& drafters,
                 const std::string& where, Problems& problems) {
  for (const Setting& setting : settings) {
    if (setting.decode.exits.empty() || setting.inside()) continue;
    const auto drafter = drafter_spec(setting, drafters);
    if (drafter && drafter->kind == infer::DrafterKind::kExit) continue;
    problems.add({where + ".exits", "this run does not read the option",
                  "method early-exit, calm or ppd, or a [[drafter]] with exit = its layers",
                  "method " + setting.method() + (setting.drafter.empty() ? "" : " with drafter " + setting.drafter),
                  "leave exits out"});
  }
}

// Adds the problems of a [[run]] at `where`. `settings` are the grid's (expand_grid()), `drafters` the suite's.
void check_grid(const SettingGrid& grid, const std::vector<Setting>& settings,
                const std::vector<infer::DrafterOptions>& drafters, const std::string& where, Problems& problems) {
  Problems found;
  for (const Setting& setting : settings) check_setting(setting, drafter_spec(setting, drafters), where, found);
  if (found.list().empty()) {
    check_unused(grid, settings.front().decode, where, found);
    check_exits(settings, drafters, where, found);
  }
  if (!grid.choose_on.empty() && grid.max_drop.empty()) {
    found.add({where + ".max_drop", "with choose_on a setting is chosen for each value", "at least one value", "none",
               "leave choose_on out to run the whole grid on every task"});
  }
  std::set<std::string> seen;  // settings of one grid share their mistakes
  for (const Problem& problem : found.list()) {
    if (seen.insert(to_string(problem)).second) problems.add(problem);
  }
}

// ---- Checks of the whole suite

template <typename Items>
std::vector<std::string> names_of(const Items& items) {
  return from_each(items, [](const auto& item) { return item.name; });
}

void check_unique(const std::vector<std::string>& names, const std::string& where, Problems& problems,
                  const std::string& hint = "") {
  std::set<std::string> seen;
  for (const auto& name : names) {
    if (seen.insert(name).second) continue;
    problems.add({where, "two entries have the same name", "different names", name, hint});
  }
}

// Adds a problem at `where` unless `name` is known; `subject` says what it names.
void check_known(const std::string& subject, const std::string& name, const std::vector<std::string>& known,
                 const std::string& where, Problems& problems) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  problems.add(unknown_name(subject, name, known, where));
}

void check_tasks(const std::vector<std::string>& tasks, const std::string& where, Problems& problems) {
  if (tasks.empty()) problems.add({where, "a suite needs a task", "at least one [[task]]", "none", ""});
  check_unique(from_each(tasks, file_safe), where, problems,
               "tasks name files, where all but letters, digits, '.', '-' and '_' becomes '_'");
}

void check_drafters(const std::vector<std::string>& drafters, const std::string& where, Problems& problems) {
  check_unique(drafters, where, problems);
  if (std::find(drafters.begin(), drafters.end(), kTargetName) == drafters.end()) return;
  problems.add({where, "a drafter has the name of the suite's own model", "another name", kTargetName, ""});
}

// Requires a metric of the task that lossy settings are chosen on; lossless ones, sampled too, are chosen by their
// speed alone.
void check_scored(const std::vector<TaskOptions>& tasks, const std::string& choose_on,
                  const std::vector<Setting>& settings, const std::string& where, Problems& problems) {
  if (std::all_of(settings.begin(), settings.end(), [](const auto& one) { return one.follows_target(); })) return;
  for (const TaskOptions& task : tasks) {
    if (task.name != choose_on || task.metric.scored()) continue;
    problems.add({where, "settings are chosen by their quality, which this task does not measure",
                  "a task with a metric, or lossless settings", "metric none", ""});
  }
}

// Returns whether both tasks read some line of the same file.
bool share_lines(const TaskOptions& a, const TaskOptions& b) {
  namespace fs = std::filesystem;
  const fs::path& file = source_file(a);
  std::error_code missing;  // of files that a stage makes later
  const bool same =
      file.lexically_normal() == source_file(b).lexically_normal() || fs::equivalent(file, source_file(b), missing);
  const auto end = [](const TaskOptions& task) {
    return task.limit > 0 ? task.skip + task.limit : std::numeric_limits<int64_t>::max();
  };
  if (!same || a.separator != b.separator) return false;
  if (a.categories == b.categories) return a.skip < end(b) && b.skip < end(a);
  const auto wanted = [&](const std::string& category) { return std::ranges::count(b.categories, category) > 0; };
  return a.categories.empty() || b.categories.empty() || std::ranges::any_of(a.categories, wanted);
}

// Requires other lines for choosing settings than for reporting them: the best of several proves nothing.
void check_validation_data(const SuiteOptions& options, const std::string& dot, Problems& problems) {
  std::set<std::string> choosing;
  for (const SettingGrid& grid : options.run) choosing.insert(grid.choose_on);
  for (const TaskOptions& task : options.task) {
    if (!choosing.contains(task.name)) continue;
    for (size_t i = 0; i < options.task.size(); ++i) {
      const TaskOptions& other = options.task[i];
      if (choosing.contains(other.name) || !share_lines(task, other)) continue;
      problems.add({fmt::format("{}task[{}]", dot, i), "the lines on which settings are chosen are reported on",
                    "other lines than those of task " + task.name, source_file(other).string() + " in both",
                    "name validation data in choose_on, or part the file with skip and limit"});
    }
  }
}

// Requires a Tandem secondary for the methods that draft with nothing else.
void check_tandem(const SettingGrid& grid, const std::vector<infer::DrafterOptions>& drafters, const std::string& where,
                  Problems& problems) {
  if (!grid.decode.needs_tandem()) return;
  for (const infer::DrafterOptions& drafter : drafters) {
    const bool asked = std::find(grid.drafter.begin(), grid.drafter.end(), drafter.name) != grid.drafter.end();
    if (!asked || drafter.spec().kind == infer::DrafterKind::kTandem) continue;
    problems.add({where, "method " + grid.decode.method + " drafts with a Tandem secondary",
                  "a [[drafter]] with tandem = its directory", drafter.name + " = " + infer::to_text(drafter.spec()),
                  ""});
  }
}

// Returns the names of the models that can decode alone.
std::vector<std::string> decoding_models(const SuiteOptions& options) {
  std::vector<std::string> models;
  for (const auto& drafter : options.drafter) {
    if (drafter.spec().kind == infer::DrafterKind::kModel) models.push_back(drafter.name);
  }
  models.emplace_back(kTargetName);
  return models;
}

// Requires that models and tasks of match rates are declared.
void check_rates(const SuiteOptions& options, const std::string& where, Problems& problems) {
  const std::vector<std::string> models = decoding_models(options);
  for (const MatchRateTable& rates : options.match_rates) {
    check_known("model", rates.model, models, where + ".model", problems);
    if (!rates.task.empty()) check_known("task", rates.task, names_of(options.task), where + ".task", problems);
  }
}

// Requires that small models and tasks of engagement curves are declared, and that the tasks are scored.
void check_engagement(const SuiteOptions& options, const std::string& where, Problems& problems) {
  for (const EngagementTable& curve : options.engagement) {
    check_known("drafter", curve.drafter, names_of(options.drafter), where + ".drafter", problems);
    if (!curve.task.empty()) check_known("task", curve.task, names_of(options.task), where + ".task", problems);
    for (const TaskOptions& task : options.task) {
      const bool own = curve.task.empty() ? &task == &options.task.front() : task.name == curve.task;
      if (!own || task.metric.scored()) continue;
      problems.add({where + ".task", "a curve shows quality, which this task does not measure", "a task with a metric",
                    "metric none", ""});
    }
  }
}

// Requires different names for different things that draft, since step times and alpha are measured once for a name.
void check_drafting(const std::vector<Setting>& settings, const std::vector<infer::DrafterOptions>& drafters,
                    const std::string& where, Problems& problems) {
  std::map<std::string, std::string> sources;
  std::set<std::string> clashes;
  for (const Setting& one : settings) {
    const auto spec = drafter_spec(one, drafters);
    const std::string source = one.model + " " + (spec ? infer::to_text(*spec) : "") + " " + one.decode.exits.string();
    if (sources.emplace(one.drafter_label(), source).first->second != source) clashes.insert(one.drafter_label());
  }
  clashes.erase("");  // settings without a drafter
  for (const std::string& name : clashes) {
    problems.add({where, "two things that draft have the same name in results", "different ones", name,
                  "early-exit drafts with exitN, N its exit_layer: call the drafter something else"});
  }
}

// Requires unique labels, those of chosen settings included, and one choose_on and max_drop for each group.
void check_labels(const std::vector<Setting>& settings, const std::string& where, Problems& problems) {
  std::vector<std::string> labels;
  std::map<std::string, Setting> groups;
  std::set<std::string> conflicts;
  for (const Setting& setting : settings) {
    labels.push_back(setting.label);
    if (setting.choose_on.empty()) continue;
    const auto [first, added] = groups.emplace(setting.group, setting);
    if (added) {
      for (const double max_drop : setting.max_drop) labels.push_back(chosen_label(setting.group, max_drop));
    } else if (setting.choose_on != first->second.choose_on || setting.max_drop != first->second.max_drop) {
      conflicts.insert(setting.group);
    }
  }
  for (const auto& group : conflicts) {
    problems.add({where, "two runs of the same kind choose in different ways",
                  "one choose_on and one max_drop for all settings of '" + group + "'", "different ones",
                  "give one of them another 'name'"});
  }
  check_unique(labels, where, problems);
}

// Requires that nothing is put before, behind or in place of a conversation's text.
void check_chat(const TaskOptions& task, const std::string& where, Problems& problems) {
  if (!task.messages.empty() && (task.jsonl.empty() || task.chat || !task.prefix.empty())) {
    problems.add({where + ".messages", "a jsonl file's conversations are prompts as they are",
                  "jsonl, without chat and prefix", "messages = \"" + task.messages + "\"", ""});
  }
  if (task.messages.empty() && !task.chat) return;
  if (task.max_source_tokens > 0 || !task.suffix.empty() || task.ids || !task.separator.empty()) {
    problems.add({where, "a chat template's prompt is neither cut nor continued",
                  "no max_source_tokens, suffix, ids or separator", "one of them", ""});
  }
}

// Requires as many references as sources, of files that are there already.
void check_lines(const TaskOptions& task, const std::string& where, Problems& problems) {
  const auto lines_of = [](const std::filesystem::path& file) {
    const std::filesystem::path real = data::real_path(file.string());
    return std::filesystem::is_regular_file(real) ? data::count_lines(real) : -1;
  };
  const int64_t lines = task.references.empty() ? -1 : lines_of(task.source);
  for (const auto& file : task.references) {
    const int64_t references = lines_of(file);
    if (references == lines || references < 0 || lines < 0) continue;
    problems.add({where + ".references",
                  fmt::format("the task has {} references than sources", references < lines ? "fewer" : "more"),
                  fmt::format("{} lines, as in {}", lines, task.source.string()),
                  fmt::format("{} lines in {}", references, file.string()), ""});
  }
}

// Requires timed lines, and rounds, that an interval can be made of.
void check_precision(const SuiteOptions& options, const std::string& dot, Problems& problems) {
  for (size_t i = 0; options.precision && i < options.task.size(); ++i) {
    if (options.task[i].timed != 1) continue;
    problems.add({fmt::format("{}task[{}].timed", dot, i), "one line does not say how others would differ",
                  "at least 2 timed lines for precision", "1", "time more lines, or leave precision out"});
  }
  if (options.spread_minutes && options.repetitions < 4) {
    problems.add({dot + "repetitions", "few rounds do not say what minutes differ by",
                  "at least 4 repetitions with spread_minutes", std::to_string(options.repetitions), ""});
  }
  if (options.spread_minutes && options.max_minutes && *options.max_minutes < *options.spread_minutes) {
    problems.add({dot + "max_minutes", "the last rounds would not be timed",
                  fmt::format("at least spread_minutes, {:g}", *options.spread_minutes),
                  fmt::format("{:g}", *options.max_minutes), "leave it out"});
  }
}

}  // namespace

void check_task(const TaskOptions& task, const std::string& where, Problems& problems) {
  const bool unresolved = !task.dataset.empty() && task.source.empty() && task.jsonl.empty();
  if (unresolved) return;  // data::fill_in_dataset_tasks() has reported why
  if (task.source.empty() == task.jsonl.empty()) {
    problems.add({where, "a task reads either text files or a jsonl file", "one of source and jsonl",
                  task.source.empty() ? "neither" : "both", ""});
  }
  const char* unscored = "prompts that are not scored need metric = { name = \"none\" }";
  const bool scored = task.metric.scored();
  if (scored && !task.source.empty() && task.references.empty()) {
    problems.add(
        {where + ".references", "a task needs references to be scored", "at least one file", "none", unscored});
  }
  if (scored && !task.jsonl.empty() && task.reference_fields.empty() && task.messages.empty()) {
    problems.add(
        {where + ".reference_fields", "a task needs references to be scored", "at least one field", "none", unscored});
  }
  if (!scored && !task.references.empty()) {
    problems.add({where + ".references", "a task without a metric scores nothing", "no references, or a metric",
                  fmt::format("{} files", task.references.size()), ""});
  }
  if (task.ids && task.metric.name == "chrf") {
    problems.add({where + ".metric", "ids have no characters that a metric could compare", "bleu, rouge or none",
                  "metric " + task.metric.name + " and ids = true", "leave ids out if the files hold text"});
  }
  if (task.ids && !task.suffix.empty()) {
    problems.add({where + ".suffix", "ids are taken as they are", "no suffix, or text", task.suffix, ""});
  }
  if (!task.separator.empty() && (task.source.empty() || scored)) {
    problems.add({where + ".separator", "separators divide text without references", "source, and metric none",
                  task.source.empty() ? "no source" : "metric " + task.metric.name, ""});
  }
  if (!task.categories.empty() && task.jsonl.empty()) {
    problems.add({where + ".categories", "only jsonl objects have categories", "jsonl, or no categories", "none", ""});
  }
  check_chat(task, where, problems);
  check_lines(task, where, problems);
}

void check_suite(const SuiteOptions& options, const std::string& where, Problems& problems) {
  const std::string dot = where.empty() ? "" : where + ".";
  const auto tasks = names_of(options.task);
  const auto drafters = names_of(options.drafter);
  check_tasks(tasks, dot + "task", problems);
  check_drafters(drafters, dot + "drafter", problems);
  const std::vector<std::string> models = decoding_models(options);
  for (size_t i = 0; i < options.run.size(); ++i) {
    const SettingGrid& grid = options.run[i];
    const std::vector<Setting> settings = expand_grid(grid, options.batch_size);
    const std::string at = fmt::format("{}run[{}]", dot, i);
    for (const auto& name : grid.drafter) check_known("drafter", name, drafters, at + ".drafter", problems);
    check_tandem(grid, options.drafter, at + ".drafter", problems);
    check_known("model", grid.model, models, at + ".model", problems);
    const size_t before = problems.list().size();
    check_grid(grid, settings, options.drafter, at, problems);
    if (grid.choose_on.empty()) continue;
    check_known("task", grid.choose_on, tasks, at + ".choose_on", problems);
    if (problems.list().size() == before) {
      check_scored(options.task, grid.choose_on, settings, at + ".choose_on", problems);
    }
  }
  check_validation_data(options, dot, problems);
  check_rates(options, dot + "match_rates", problems);
  check_engagement(options, dot + "engagement", problems);
  check_precision(options, dot, problems);
  try {
    const std::vector<Setting> settings = expand_settings(options);
    check_drafting(settings, options.drafter, dot + "run", problems);
    check_labels(settings, dot + "run", problems);
  } catch (const UserError& error) {
    problems.add_all(error.problems(), dot);
  }
}

}  // namespace draftsmith::evaluate
