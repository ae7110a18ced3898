#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/registry.h"
#include "data/datasets/datasets.h"

namespace draftsmith::data {

namespace {

namespace fs = std::filesystem;

// Returns the categories that the task wants, those of its key `categories` or else all. Errors: UserError for unknown
// names.
std::vector<DatasetCategory> wanted_categories(const toml::table& task, const NamedDataset& set,
                                               const JsonlSummary& summary) {
  const toml::array* wanted = task["categories"].as_array();
  if (wanted == nullptr || summary.categories.empty()) return summary.categories;
  std::vector<DatasetCategory> chosen;
  for (auto&& node : *wanted) {
    const std::string name = node.value_or(std::string());
    const auto found = std::ranges::find(summary.categories, name, &DatasetCategory::name);
    if (found == summary.categories.end()) {
      std::vector<std::string> known;
      for (const DatasetCategory& category : summary.categories) known.push_back(category.name);
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

// Fills in a task, or one category of it. Translation and summarization are scored where every line has a reference.
void fill_in_jsonl(toml::table& task, const NamedDataset& set, const JsonlSummary& summary,
                   const DatasetCategory& category) {
  const bool translation = category.name == "translation";
  if ((translation || category.name == "summarization") && category.has_references &&
      !task.contains("reference_fields")) {
    set_metric(task, translation ? "bleu" : "rouge");
    task.insert("reference_fields", array_of({"reference[0]"}));
  }
  task.insert("jsonl", portable_path(set.file));
  set_if_absent(task, summary.chat() ? "messages" : "source_field", summary.source);
  set_metric(task, task.contains("reference_fields") ? "bleu" : summary.metric);
  if (!task.contains("reference_fields")) task.insert("reference_fields", array_of(summary.references));
}

// Returns the tasks that a task with a data set becomes. Errors: UserError.
std::vector<toml::table> expanded(toml::table task, const std::string& name) {
  refuse_files(task, {"source", "references", "jsonl"}, name);
  const NamedDataset set = find_dataset(name);
  const auto [source, target] = set.pair(task["direction"].value_or(std::string()));
  set_if_absent(task, "name", name);
  std::vector<toml::table> tasks;
  if (!set.jsonl()) {
    set_metric(task, set.parallel() ? "bleu" : "none");
    task.insert("source", portable_path(set.parallel() ? source : set.file));
    const bool scored = task["metric"]["name"].value<std::string>() != "none";
    if (set.parallel() && scored) task.insert("references", array_of({portable_path(target)}));
    if (!set.parallel()) set_if_absent(task, "separator", document_separator(set.file));
    tasks.push_back(std::move(task));
    return tasks;
  }
  const JsonlSummary summary = summarize_jsonl(set.file);
  const std::string base = task["name"].value_or(set.name);
  for (const DatasetCategory& category : wanted_categories(task, set, summary)) {
    toml::table& one = tasks.emplace_back(task);
    one.insert_or_assign("name", base + "." + category.name);
    one.insert_or_assign("categories", array_of({category.name}));
    fill_in_jsonl(one, set, summary, category);
  }
  if (summary.categories.empty()) fill_in_jsonl(tasks.emplace_back(task), set, summary, {});
  return tasks;
}

// Calls action(); adds the problems of a UserError, each with `where` before its place, and returns false.
template <class Action>
bool collect_problems(const std::string& where, Problems& problems, const Action& action) {
  try {
    action();
    return true;
  } catch (const UserError& error) {
    problems.add_all(error.problems(), where.empty() ? "" : where + ": ");
    return false;
  }
}

}  // namespace

TextInput with_dataset(const TextInput& input) {
  if (input.dataset.empty()) return input;
  for (const fs::path* file : {&input.source, &input.target, &input.jsonl, &input.text}) {
    if (file->empty()) continue;
    throw UserError({.where = "text input",
                     .what = "`dataset` and a file both say where the text comes from",
                     .expected = "one of them",
                     .found = input.dataset + " and " + file->string()});
  }
  const NamedDataset set = find_dataset(input.dataset);
  TextInput filled = input;
  std::tie(filled.source, filled.target) = set.pair(input.direction);
  if (set.parallel()) return filled;
  if (!set.jsonl()) {
    filled.text = set.file;
    if (filled.separator.empty()) filled.separator = document_separator(set.file);
    return filled;
  }
  const JsonlSummary summary = summarize_jsonl(set.file);
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
  const auto name_of = [](const toml::node& node) {
    return node.is_table() ? dataset_of(*node.as_table()) : std::nullopt;
  };
  if (tasks == nullptr ||
      std::none_of(tasks->begin(), tasks->end(), [&](const toml::node& one) { return name_of(one).has_value(); }))
    return;
  toml::array filled;
  for (toml::node& node : *tasks) {
    const auto name = name_of(node);
    const bool done = name && collect_problems(location_of(node), problems, [&] {
                        for (toml::table& one : expanded(*node.as_table(), *name)) filled.push_back(std::move(one));
                      });
    if (!done) node.visit([&](auto& value) { filled.push_back(std::move(value)); });
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
