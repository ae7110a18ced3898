#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/logging.h"
#include "base/registry.h"
#include "data/datasets/datasets.h"
#include "data/text/readers.h"

namespace draftsmith::data {

namespace {

namespace fs = std::filesystem;

// Returns the element of that name.
template <class List>
auto find_named(List& list, const std::string& name) {
  return std::find_if(list.begin(), list.end(), [&](const auto& one) { return one.name == name; });
}

void refuse_direction(const std::string& direction, const NamedDataset& set) {
  if (direction.empty()) return;
  throw UserError({.where = "data set " + set.name,
                   .what = "only parallel text has a direction",
                   .expected = "no `direction`",
                   .found = direction});
}

void require_equal_lines(const NamedDataset& set, const Direction& direction) {
  const int64_t lines = count_lines(direction.source);
  for (const std::filesystem::path& file : direction.references) {
    const int64_t references = count_lines(file);
    if (references == lines) continue;
    throw UserError({.where = "data set " + set.name,
                     .what = fmt::format("{} references than sources", references < lines ? "fewer" : "more"),
                     .expected = fmt::format("{} lines, as in {}", lines, direction.source.string()),
                     .found = fmt::format("{} lines in {}", references, file.string()),
                     .hint = "the files do not belong together, or one is incomplete"});
  }
}

JsonlSummary known_summary(const NamedDataset& set) {
  JsonlSummary summary = summarize_jsonl(set.file);
  if (summary.source.empty()) {
    throw UserError({.where = "data set " + set.name,
                     .what = "no convention says which fields are source and references",
                     .expected = "fields such as turns, prompt, text, source and target, dialogue and summary",
                     .found = fmt::format("fields {}", fmt::join(summary.fields, ", ")),
                     .hint = fmt::format("name the file with `jsonl` ({}) and its fields", set.file.string())});
  }
  if (summary.placeholders > 0) {
    throw UserError({.where = set.file.string(),
                     .what = fmt::format("{} of {} prompts are placeholders", summary.placeholders, summary.lines),
                     .expected = "SPEED-Bench with all of its prompts",
                     .found = "\"FULL BENCHMARK DATA SHOULD BE FETCHED ...\"",
                     .hint = "prepare the data with NVIDIA's own program (specdec_bench), which fetches them"});
  }
  return summary;
}

// Spec-Bench's categories that come from MT-Bench, which its tables give as one.
constexpr const char* kMtBench = "mt_bench";
constexpr std::array<const char*, 8> kMtBenchCategories{"writing", "roleplay",   "reasoning", "math",
                                                        "coding",  "extraction", "stem",      "humanities"};

bool from_mt_bench(const DatasetCategory& category) {
  return std::find(kMtBenchCategories.begin(), kMtBenchCategories.end(), category.name) != kMtBenchCategories.end();
}

// Returns the categories of a file, in its order, with those of MT-Bench as one if all are there.
std::vector<DatasetCategory> category_groups(const JsonlSummary& summary) {
  const auto& all = summary.categories;
  const bool joined = std::count_if(all.begin(), all.end(), from_mt_bench) == std::ssize(kMtBenchCategories);
  std::vector<DatasetCategory> groups;
  for (const DatasetCategory& category : all) {
    const auto group = joined && from_mt_bench(category) ? find_named(groups, kMtBench) : groups.end();
    if (group == groups.end()) {
      groups.push_back(category);
      if (joined && from_mt_bench(category)) groups.back().name = kMtBench;
      continue;
    }
    group->categories.push_back(category.name);
    group->lines += category.lines;
    group->with_reference += category.with_reference;
  }
  return groups;
}

// Returns the groups that the task wants: those, or the single categories, that `categories` names, else all. Errors:
// UserError for unknown names.
std::vector<DatasetCategory> wanted_groups(const toml::table& task, const NamedDataset& set,
                                           const JsonlSummary& summary) {
  std::vector<DatasetCategory> groups = category_groups(summary);
  const toml::array* wanted = task["categories"].as_array();
  if (wanted == nullptr || groups.empty()) return groups;
  for (const DatasetCategory& one : summary.categories) {
    if (find_named(groups, one.name) == groups.end()) groups.push_back(one);
  }
  std::vector<DatasetCategory> chosen;
  for (auto&& node : *wanted) {
    const std::string name = node.value_or(std::string());
    const auto found = find_named(groups, name);
    if (found == groups.end()) {
      std::vector<std::string> known;
      for (const DatasetCategory& group : groups) known.push_back(group.name);
      Problem problem = unknown_name("category", name, known);
      problem.where = "data set " + set.name;
      throw UserError(problem);
    }
    chosen.push_back(*found);
  }
  return chosen;
}

// Returns a path as recipes write it: "$DATA/..." for a file in the data folder, any other path as it is.
std::string portable_path(const fs::path& file) {
  const fs::path inside = file.lexically_relative(data_folder());
  const bool outside = inside.empty() || inside.begin()->string() == "..";
  return outside ? file.string() : "$DATA/" + inside.string();
}

toml::array array_of(const std::vector<std::string>& texts) {
  toml::array array;
  for (const std::string& text : texts) array.push_back(text);
  return array;
}

void set_if_absent(toml::table& table, const char* key, const std::string& value) {
  if (!table.contains(key)) table.insert(key, value);
}

// Returns the data set's name; nothing if the table has none, or one that is no text, which the parser reports.
std::optional<std::string> dataset_of(const toml::table& table) {
  const auto name = table["dataset"].value<std::string>();
  return name && !name->empty() ? name : std::nullopt;
}

// Requires that the keys do not name files as well. Errors: UserError.
void refuse_files(const toml::table& table, const std::vector<const char*>& keys, const std::string& name) {
  for (const char* key : keys) {
    if (!table.contains(key)) continue;
    throw UserError({.where = location_of(*table.get(key)),
                     .what = fmt::format("`dataset` and `{}` both say where the text comes from", key),
                     .expected = "one of them",
                     .found = fmt::format("dataset = \"{}\" and {}", name, key)});
  }
}

// Gives a task the metric of its data set, unless it names one.
void set_metric(toml::table& task, const std::string& name) {
  if (!task.contains("metric")) task.insert("metric", toml::table());
  toml::table* metric = task["metric"].as_table();
  if (metric == nullptr || metric->contains("name") || metric->contains("command")) return;
  metric->insert("name", name);
  if (name == "rouge") metric->insert("stemmer", true);
}

bool is_scored(const toml::table& task) {
  return task["metric"]["name"].value<std::string>() != "none";
}

void fill_in_parallel(toml::table& task, const NamedDataset& set) {
  const Direction& direction = set.direction(task["direction"].value_or(std::string()));
  require_equal_lines(set, direction);
  set_metric(task, "bleu");
  task.insert("source", portable_path(direction.source));
  if (!is_scored(task)) return;
  toml::array references;
  for (const fs::path& file : direction.references) references.push_back(portable_path(file));
  task.insert("references", std::move(references));
}

void fill_in_jsonl(toml::table& task, const NamedDataset& set, const JsonlSummary& summary) {
  task.insert("jsonl", portable_path(set.file));
  set_if_absent(task, summary.chat() ? "messages" : "source_field", summary.source);
  set_metric(task, task.contains("reference_fields") ? "bleu" : summary.metric);
  if (!task.contains("reference_fields")) task.insert("reference_fields", array_of(summary.references));
}

// Gives a category's task its name, its lines and, where all of them have references, its metric.
void fill_in_category(toml::table& task, const std::string& base, const DatasetCategory& group) {
  task.insert_or_assign("name", base + "." + group.name);
  task.insert_or_assign("categories", array_of(group.categories));
  const bool translation = group.name == "translation";
  const bool has_metric = translation || group.name == "summarization";
  if (!has_metric || group.with_reference < group.lines || task.contains("reference_fields")) return;
  set_metric(task, translation ? "bleu" : "rouge");
  task.insert("reference_fields", array_of({"reference[0]"}));
}

std::vector<toml::table> fill_in_prompts(toml::table task, const NamedDataset& set) {
  const JsonlSummary summary = known_summary(set);
  if (summary.further_turns > 0) {
    log_info("{}: {} of {} prompts have further turns; the first one is decoded", set.name, summary.further_turns,
             summary.lines);
  }
  std::vector<toml::table> tasks;
  const std::string base = task["name"].value_or(set.name);
  for (const DatasetCategory& group : wanted_groups(task, set, summary)) {
    fill_in_category(tasks.emplace_back(task), base, group);
  }
  if (summary.categories.empty()) tasks.push_back(std::move(task));
  for (toml::table& one : tasks) fill_in_jsonl(one, set, summary);
  return tasks;
}

// Returns the tasks that a task with a data set becomes. Errors: UserError.
std::vector<toml::table> expanded(toml::table task, const std::string& name) {
  refuse_files(task, {"source", "references", "jsonl"}, name);
  const NamedDataset set = find_dataset(name);
  set_if_absent(task, "name", name);
  if (!set.parallel()) refuse_direction(task["direction"].value_or(std::string()), set);
  if (set.jsonl()) return fill_in_prompts(std::move(task), set);
  if (set.parallel()) {
    fill_in_parallel(task, set);
  } else {
    task.insert("source", portable_path(set.file));
    set_if_absent(task, "separator", document_separator(set.file));
    set_metric(task, "none");
  }
  std::vector<toml::table> tasks;
  tasks.push_back(std::move(task));
  return tasks;
}

// Calls action(); adds the problems of a UserError, each with `where` before its place.
template <class Action>
void collect_problems(const std::string& where, Problems& problems, const Action& action) {
  try {
    action();
  } catch (const UserError& error) {
    problems.add_all(error.problems(), where.empty() ? "" : where + ": ");
  }
}

}  // namespace

TextInput with_dataset(const TextInput& input) {
  if (input.dataset.empty()) return input;
  for (const std::filesystem::path* file : {&input.source, &input.target, &input.jsonl, &input.text}) {
    if (file->empty()) continue;
    throw UserError({.where = "text input",
                     .what = "`dataset` and a file both say where the text comes from",
                     .expected = "one of them",
                     .found = input.dataset + " and " + file->string()});
  }
  const NamedDataset set = find_dataset(input.dataset);
  TextInput filled = input;
  if (set.parallel()) {
    const Direction& direction = set.direction(input.direction);
    require_equal_lines(set, direction);
    filled.source = direction.source;
    filled.target = direction.references.front();
    return filled;
  }
  refuse_direction(input.direction, set);
  if (!set.jsonl()) {
    filled.text = set.file;
    if (filled.separator.empty()) filled.separator = document_separator(set.file);
    return filled;
  }
  const JsonlSummary summary = known_summary(set);
  filled.jsonl = set.file;
  if (summary.chat()) {
    filled.messages = summary.source;
    return filled;
  }
  filled.source_field = summary.references.empty() ? "" : summary.source;
  filled.target_fields = summary.references.empty() ? std::vector<std::string>{summary.source} : summary.references;
  return filled;
}

void list_tasks(toml::table& suite) {
  toml::table* one = suite["task"].as_table();
  if (one == nullptr) return;
  toml::array list;
  list.push_back(std::move(*one));
  suite.insert_or_assign("task", std::move(list));
}

void fill_in_dataset_tasks(toml::table& suite, Problems& problems) {
  list_tasks(suite);
  toml::array* tasks = suite["task"].as_array();
  if (tasks == nullptr) return;
  std::map<size_t, std::vector<toml::table>> expansions;  // by place in the list
  const size_t problems_before = problems.list().size();
  for (size_t i = 0; i < tasks->size(); ++i) {
    const toml::table* task = tasks->get(i)->as_table();
    const auto name = task == nullptr ? std::nullopt : dataset_of(*task);
    if (!name) continue;
    collect_problems(location_of(*task), problems, [&] { expansions[i] = expanded(*task, *name); });
  }
  if (expansions.empty() || problems.list().size() > problems_before) return;
  toml::array filled;
  for (size_t i = 0; i < tasks->size(); ++i) {
    if (!expansions.contains(i)) {
      tasks->get(i)->visit([&](auto& value) { filled.push_back(std::move(value)); });
      continue;
    }
    for (toml::table& one : expansions.at(i)) filled.push_back(std::move(one));
  }
  suite.insert_or_assign("task", std::move(filled));
}

void fill_in_dataset_corpus(toml::table& corpus, Problems& problems) {
  const auto name = dataset_of(corpus);
  if (!name) return;
  collect_problems(location_of(corpus), problems, [&] {
    refuse_files(corpus, {"source", "target", "jsonl", "text"}, *name);
    TextInput wanted;
    wanted.dataset = *name;
    wanted.direction = corpus["direction"].value_or(std::string());
    const TextInput input = with_dataset(wanted);
    const auto set_file = [&](const char* key, const fs::path& file) {
      if (!file.empty()) corpus.insert(key, portable_path(file));
    };
    set_file("source", input.source);
    set_file("target", input.target);
    set_file("jsonl", input.jsonl);
    set_file("text", input.text);
    if (!input.separator.empty()) set_if_absent(corpus, "separator", input.separator);
    if (input.jsonl.empty()) return;
    if (!input.messages.empty()) return set_if_absent(corpus, "messages", input.messages);
    set_if_absent(corpus, "source_field", input.source_field);
    if (!corpus.contains("target_fields")) corpus.insert("target_fields", array_of(input.target_fields));
  });
}

}  // namespace draftsmith::data
