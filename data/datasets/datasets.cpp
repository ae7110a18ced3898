#include "data/datasets/datasets.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <ranges>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/registry.h"
#include "base/utf8.h"
#include "data/text/readers.h"

namespace draftsmith::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kDataPrefix = "$DATA/";

// ---- Names of the data folder

fs::path data_folder() {
  const char* chosen = std::getenv(kDataVariable);
  return chosen && *chosen ? chosen : "../shared/data";
}

// Returns the entries of a folder whose names do not begin with "_" or "."; none if it cannot be read.
std::set<fs::path> entries_of(const fs::path& folder) {
  std::set<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const char first = entry->path().filename().string().front();
    if (first != '_' && first != '.') entries.insert(entry->path());
  }
  return entries;
}

// Returns whether a file's ending may be a language: two or three small letters that no other kind of file has.
bool is_language(const std::string& ending) {
  constexpr std::string_view kOthers = ".md .gz .xz .py .sh .csv .tsv .zip .bin .xml .log .pdf .npy ";
  const auto letters = std::count_if(ending.begin(), ending.end(), [](char c) { return 'a' <= c && c <= 'z'; });
  return (letters == 2 || letters == 3) && letters + 1 == std::ssize(ending) &&
         kOthers.find(ending + " ") == std::string_view::npos;
}

// Returns the name of a text: FOLDER/STEM, without the folder's own name at the beginning of STEM.
std::string dataset_name(const std::string& folder, const std::string& stem) {
  if (folder.empty()) return stem;
  const size_t joint = stem.find_first_of("._-", folder.size());
  const bool repeated = stem.starts_with(folder) && joint == folder.size();
  return folder + "/" + (repeated ? stem.substr(joint + 1) : stem);
}

// Named text: parallel text, or one file of jsonl or plain text.
struct NamedDataset {
  using Files = std::pair<fs::path, fs::path>;

  std::string name;
  std::map<std::string, Files> directions = {};  // source and target of parallel text, by "de-en"; else empty
  fs::path file = {};                            // jsonl or plain text

  bool parallel() const { return !directions.empty(); }
  bool jsonl() const { return file.extension() == ".jsonl"; }
  // Returns the files of a direction, which must be empty if the text is not parallel. Errors: UserError that names all
  // directions.
  Files pair(const std::string& direction) const {
    if (!parallel() && direction.empty()) return {};
    if (const auto files = directions.find(direction); files != directions.end()) return files->second;
    const auto known = std::views::keys(directions);
    Problem problem = unknown_name("direction", direction, {known.begin(), known.end()});
    problem.where = "data set " + name;
    if (!parallel()) {
      problem.what = "only parallel text has a direction";
      problem.expected = "no `direction`";
    }
    if (direction.empty()) {
      problem.what = "parallel text needs a direction";
      problem.found = "no `direction`";
      problem.hint = "write direction = \"" + known.front() + "\" beside `dataset`";
    }
    throw UserError(problem);
  }
};

// Returns the data sets of a folder and of its folders, sorted by name: files X.LL of one text X in several languages
// LL (two or three letters), *.jsonl, *.txt, *.raw and *.tokens. Names that begin with "_" or "." are ignored.
std::vector<NamedDataset> datasets_in(const fs::path& folder) {
  constexpr std::string_view kSingle = ".jsonl .txt .raw .tokens ";
  std::vector<NamedDataset> sets;
  std::map<std::string, std::map<std::string, fs::path>> parallel;  // by name and language
  const auto add = [&](const fs::path& file, const std::string& folder_name) {
    const std::string ending = file.extension().string(), name = dataset_name(folder_name, file.stem().string());
    if (ending.empty() || !fs::is_regular_file(file)) return;
    if (kSingle.find(ending + " ") != std::string_view::npos) sets.push_back({.name = name, .file = file});
    if (is_language(ending)) parallel[name][ending.substr(1)] = file;
  };
  for (const fs::path& entry : entries_of(folder)) {
    add(entry, "");
    for (const fs::path& file : entries_of(entry)) add(file, entry.filename().string());
  }
  for (const auto& [name, languages] : parallel) {
    NamedDataset set{.name = name};
    for (const auto& [from, source] : languages) {
      for (const auto& [into, target] : languages) {
        if (from != into) set.directions[from + "-" + into] = {source, target};
      }
    }
    if (set.parallel()) sets.push_back(std::move(set));
  }
  std::ranges::sort(sets, {}, &NamedDataset::name);
  return sets;
}

// Returns the data set of that name. Errors: UserError with the nearest names, or with the way to get the data.
NamedDataset find_dataset(const std::string& name) {
  const fs::path folder = data_folder();
  const Registry<NamedDataset> known("data set", datasets_in(folder));
  if (const NamedDataset* set = known.find(name)) return *set;
  const auto inside = [&](const NamedDataset& set) { return set.name.starts_with(name + "/"); };
  const auto only = std::ranges::find_if(known, inside);
  if (std::ranges::count_if(known, inside) == 1) return *only;
  Problem problem = unknown_name("data set", name, known.names());
  problem.where = "data folder " + folder.string() + (fs::is_directory(folder) ? "" : " (not there)");
  if (problem.hint.empty()) {
    problem.hint = fmt::format("{} names another folder", kDataVariable);
  }
  throw UserError(problem);
}

// ---- Fields of jsonl files

// Content of a jsonl file by the conventions of known data sets.
struct JsonlContent {
  std::string source = {};  // a field
  std::vector<std::string> references = {};
  std::string metric = "none";  // bleu, rouge or none
  bool chat() const { return source == "messages"; }
};

// Keys of the objects of a kind of data sets. The first row that fits an object applies.
struct Convention {
  const char* source;
  const char* reference;  // or numbered: reference1, reference2, ...; empty: prompts without references
  const char* metric;
};

constexpr Convention kConventions[] = {{"messages", "", "none"},
                                       {"turns[0]", "", "none"},
                                       {"dialogue", "summary", "rouge"},
                                       {"document", "summary", "rouge"},
                                       {"article", "highlights", "rouge"},
                                       {"source", "target", "bleu"},
                                       {"prompt", "", "none"},
                                       {"article", "", "none"},
                                       {"dialogue", "", "none"},
                                       {"text", "", "none"}};

// Returns the field of that name, or the numbered fields, that an object has; an empty name for an empty name.
std::vector<std::string> fields_of(const json& object, const std::string& name) {
  if (name.empty() || object.contains(name)) return {name};
  std::vector<std::string> fields;
  for (int i = 1; object.contains(name + std::to_string(i)); ++i) fields.push_back(name + std::to_string(i));
  return fields;
}

// Returns what a file holds whose first object is this. Errors: UserError if no convention fits.
JsonlContent by_convention(const json& object, const fs::path& file) {
  for (const auto& [source, reference, metric] : kConventions) {
    JsonlContent whole{.source = source, .references = fields_of(object, reference), .metric = metric};
    if (!object.contains(whole.source.substr(0, whole.source.find('['))) || whole.references.empty()) continue;
    if (whole.references.front().empty()) whole.references.clear();
    // Lists of sentences are documents and their summaries, not sentences and their translations.
    if (whole.metric == "bleu" && object[source].is_array()) whole.metric = "rouge";
    return whole;
  }
  std::vector<std::string> fields;
  for (const auto& [key, value] : object.items()) fields.push_back(key);
  throw UserError({file.string(), "no convention says which fields are source and references",
                   "fields such as turns, prompt, text, source and target, dialogue and summary",
                   fmt::format("fields {}", fmt::join(fields, ", ")), "name the file with `jsonl`, and its fields"});
}

// Reads the first line, which tells the fields. Errors: UserError that names a line that is no JSON object, an empty
// file, and fields of no known convention.
JsonlContent content_of_jsonl(const fs::path& file) {
  LineReader lines(file);
  for (std::string line; lines.next(line);) {
    if (!is_blank(line)) return by_convention(parse_object_line(line, lines.where()), file);
  }
  throw UserError({file.string(), "the data set is empty", "one JSON object a line", "", ""});
}

// Returns the line that separates the documents of a plain text: "<|endoftext|>" if its beginning has such a line, else
// an empty text.
std::string document_separator(const fs::path& file) {
  const std::string separator = "<|endoftext|>";
  LineReader lines(file);
  for (std::string line; lines.line() < 1000 && lines.next(line);) {
    if (line == separator) return separator;
  }
  return "";
}

// ---- Keys of tasks and corpora

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

// Returns the data set's name; empty if the table has none, or one that is no text, which the parser reports.
std::string dataset_of(const toml::node& node) {
  return node.is_table() ? (*node.as_table())["dataset"].value_or(std::string()) : "";
}

// Requires that the keys do not name files as well. Errors: UserError.
void refuse_files(const toml::table& table, const std::vector<const char*>& keys) {
  for (const char* key : keys) {
    if (!table.contains(key)) continue;
    throw UserError({location_of(*table.get(key)),
                     fmt::format("`dataset` and `{}` both say where the text comes from", key), "one of them",
                     fmt::format("dataset = \"{}\" and {}", dataset_of(table), key), ""});
  }
}

// Gives a task the metric of its data set, unless it names one.
void set_metric(toml::table& task, const std::string& name) {
  task.insert("metric", toml::table());
  toml::table* metric = task["metric"].as_table();
  if (metric == nullptr || metric->contains("name") || metric->contains("command")) return;
  metric->insert("name", name);
  if (name == "rouge") metric->insert("stemmer", true);
}

// Returns the tasks that a task of a jsonl file becomes: one for each of its `categories`, or one of all lines. Keys
// that are there stay.
std::vector<toml::table> jsonl_tasks(toml::table task, const fs::path& file) {
  const JsonlContent content = content_of_jsonl(file);
  set_metric(task, task.contains("reference_fields") ? "bleu" : content.metric);
  task.insert("jsonl", portable_path(file));
  task.insert(content.chat() ? "messages" : "source_field", content.source);
  task.insert("reference_fields", array_of(content.references));
  const toml::array* categories = task["categories"].as_array();
  if (categories == nullptr || categories->empty()) return {std::move(task)};
  std::vector<toml::table> tasks;
  for (const toml::node& category : *categories) {
    const std::string name = category.value_or(std::string());
    toml::table& one = tasks.emplace_back(task);
    one.insert_or_assign("name", task["name"].value_or(std::string()) + "." + name);
    one.insert_or_assign("categories", array_of({name}));
  }
  return tasks;
}

// Returns the tasks that a task with a data set becomes. Errors: UserError.
std::vector<toml::table> expanded(toml::table task) {
  refuse_files(task, {"source", "references", "jsonl"});
  const std::string name = dataset_of(task);
  const NamedDataset set = find_dataset(name);
  const auto [source, target] = set.pair(task["direction"].value_or(std::string()));
  task.insert("name", name);
  if (set.jsonl()) return jsonl_tasks(std::move(task), set.file);
  set_metric(task, set.parallel() ? "bleu" : "none");
  task.insert("source", portable_path(set.parallel() ? source : set.file));
  const bool scored = task["metric"]["name"].value<std::string>() != "none";
  if (set.parallel() && scored) task.insert("references", array_of({portable_path(target)}));
  if (!set.parallel()) task.insert("separator", document_separator(set.file));
  return {std::move(task)};
}

// Calls action(); adds the problems of a UserError, each with the node's place before its own.
template <class Action>
void collect_problems(const toml::node& node, Problems& problems, const Action& action) {
  try {
    action();
  } catch (const UserError& error) {
    const std::string where = location_of(node);
    problems.add_all(error.problems(), where.empty() ? "" : where + ": ");
  }
}

}  // namespace

std::string real_path(const std::string& text) {
  return text.starts_with(kDataPrefix) ? data_folder().string() + text.substr(kDataPrefix.size() - 1) : text;
}

Problem missing_path(const std::string& text, const std::string& where) {
  std::string hint = fs::path(text).is_absolute() ? "" : "paths are relative to the current directory";
  if (text.starts_with(kDataPrefix)) {
    const bool there = fs::is_directory(data_folder());
    hint = fmt::format("$DATA is {}{}; set {} to {}", data_folder().string(), there ? "" : " (not there)",
                       kDataVariable, there ? "another folder, or correct the path" : "the folder with your data");
  }
  return {where, "a file or model directory is missing", "a file or folder", real_path(text) + " (not there)", hint};
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
  for (auto task = tasks->begin(); task != tasks->end();) {
    std::vector<toml::table> parts;
    const std::string name = dataset_of(*task);
    if (!name.empty()) collect_problems(*task, problems, [&] { parts = expanded(*task->as_table()); });
    if (!name.empty() && parts.empty()) task->as_table()->insert("name", name);  // no second problem
    task = parts.empty() ? std::next(task) : tasks->erase(task);
    for (toml::table& part : parts) task = std::next(tasks->insert(task, std::move(part)));
  }
}

void fill_in_dataset_corpus(toml::table& corpus, Problems& problems) {
  const std::string name = dataset_of(corpus);
  if (name.empty()) return;
  collect_problems(corpus, problems, [&] {
    refuse_files(corpus, {"source", "target", "jsonl", "text"});
    const NamedDataset set = find_dataset(name);
    const auto [source, target] = set.pair(corpus["direction"].value_or(std::string()));
    if (set.parallel()) {
      corpus.insert("source", portable_path(source));
      corpus.insert("target", portable_path(target));
    } else if (set.jsonl()) {
      const JsonlContent whole = content_of_jsonl(set.file);
      corpus.insert("jsonl", portable_path(set.file));
      if (whole.chat()) {
        corpus.insert("messages", whole.source);
        return;
      }
      const bool prompts = whole.references.empty();
      corpus.insert("source_field", prompts ? "" : whole.source);
      corpus.insert("target_fields", array_of(prompts ? std::vector{whole.source} : whole.references));
    } else {
      corpus.insert("text", portable_path(set.file));
      const std::string separator = document_separator(set.file);
      if (!separator.empty()) corpus.insert("separator", separator);
    }
  });
}

}  // namespace draftsmith::data
