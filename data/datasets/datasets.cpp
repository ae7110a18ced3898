#include "data/datasets/datasets.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/registry.h"
#include "base/utf8.h"
#include "data/chat/chat_template.h"
#include "data/text/readers.h"

namespace draftsmith::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kDataPrefix = "$DATA/";

// ---- Names of the data folder

// Returns the entries of a folder whose names do not begin with "_" or ".", sorted; none if it cannot be read.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.front() != '_' && name.front() != '.') entries.push_back(entry->path());
  }
  std::sort(entries.begin(), entries.end());
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

void add_files(const fs::path& folder, const std::string& folder_name, std::vector<NamedDataset>& sets) {
  std::map<std::string, std::map<std::string, fs::path>> parallel;  // by name and language
  for (const fs::path& file : entries_of(folder)) {
    if (!fs::is_regular_file(file)) continue;
    const std::string ending = file.extension().string(), name = dataset_name(folder_name, file.stem().string());
    if (ending == ".jsonl" || ending == ".txt" || ending == ".raw" || ending == ".tokens") {
      sets.push_back({.name = name, .file = file});
    } else if (is_language(ending)) {
      parallel[name][ending.substr(1)] = file;
    }
  }
  for (const auto& [name, languages] : parallel) {
    if (languages.size() > 1) sets.push_back({.name = name, .languages = languages});
  }
}

// ---- Fields of jsonl files

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

// Categories whose outputs are scored where every line has a `reference`: Spec-Bench's.
constexpr Convention kCategories[] = {{"translation", "reference[0]", "bleu"},
                                      {"summarization", "reference[0]", "rouge"}};

// Returns the field of that name, or the numbered fields, that an object has; an empty name for an empty name.
std::vector<std::string> fields_of(const json& object, const std::string& name) {
  if (name.empty() || object.contains(name)) return {name};
  std::vector<std::string> fields;
  for (int i = 1; object.contains(name + std::to_string(i)); ++i) fields.push_back(name + std::to_string(i));
  return fields;
}

// Returns the summary of a file's first object, without categories. Errors: UserError if no convention fits.
JsonlSummary by_convention(const json& object, const fs::path& file) {
  for (const auto& [source, reference, metric] : kConventions) {
    JsonlSummary summary{.source = source, .references = fields_of(object, reference), .metric = metric};
    if (!object.contains(summary.source.substr(0, summary.source.find('['))) || summary.references.empty()) continue;
    if (summary.references.front().empty()) summary.references.clear();
    // Lists of sentences are documents and their summaries, not sentences and their translations.
    if (summary.metric == "bleu" && object[source].is_array()) summary.metric = "rouge";
    return summary;
  }
  std::vector<std::string> fields;
  for (const auto& [key, value] : object.items()) fields.push_back(key);
  throw UserError({.where = file.string(),
                   .what = "no convention says which fields are source and references",
                   .expected = "fields such as turns, prompt, text, source and target, dialogue and summary",
                   .found = fmt::format("fields {}", fmt::join(fields, ", ")),
                   .hint = "name the file with `jsonl`, and its fields"});
}

void add_category(const json& object, std::vector<DatasetCategory>& categories) {
  if (!object.contains("category") || !object["category"].is_string()) return;
  const std::string name = object["category"].get<std::string>();
  auto found = std::ranges::find(categories, name, &DatasetCategory::name);
  if (found == categories.end()) found = categories.insert(found, {.name = name});
  found->has_references = found->has_references && object.contains("reference");
}

// ---- Keys of tasks and corpora

// Returns the categories that the task wants, those of its key `categories` or else all. Errors: UserError for unknown
// names.
std::vector<DatasetCategory> wanted_categories(const toml::table& task, const NamedDataset& set,
                                               const std::vector<DatasetCategory>& known) {
  const toml::array* wanted = task["categories"].as_array();
  if (wanted == nullptr || known.empty()) return known;
  std::vector<std::string> names;
  for (const DatasetCategory& category : known) names.push_back(category.name);
  std::vector<DatasetCategory> chosen;
  for (auto&& node : *wanted) {
    const std::string name = node.value_or(std::string());
    const auto found = std::ranges::find(known, name, &DatasetCategory::name);
    if (found == known.end()) throw UserError(unknown_name("category of data set " + set.name, name, names));
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

// Returns the data set's name; empty if the table has none, or one that is no text, which the parser reports.
std::string dataset_of(const toml::node& node) {
  return node.is_table() ? (*node.as_table())["dataset"].value_or(std::string()) : "";
}

[[noreturn]] void refuse_file(const std::string& name, const std::string& key, const std::string& where) {
  throw UserError({.where = where,
                   .what = fmt::format("`dataset` and `{}` both say where the text comes from", key),
                   .expected = "one of them",
                   .found = fmt::format("dataset = \"{}\" and {}", name, key)});
}

// Requires that the keys do not name files as well. Errors: UserError.
void refuse_files(const toml::table& table, const std::vector<const char*>& keys) {
  for (const char* key : keys) {
    if (table.contains(key)) refuse_file(dataset_of(table), key, location_of(*table.get(key)));
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

// Fills in a task, or one category of it. Keys that are there stay.
void fill_in_jsonl(toml::table& task, const NamedDataset& set, JsonlSummary summary, const DatasetCategory& category) {
  for (const auto& [name, reference, metric] : kCategories) {
    if (name != category.name || !category.has_references) continue;
    summary.references = {reference};
    summary.metric = metric;
  }
  set_metric(task, task.contains("reference_fields") ? "bleu" : summary.metric);
  task.insert("jsonl", portable_path(set.file));
  task.insert(summary.chat() ? "messages" : "source_field", summary.source);
  task.insert("reference_fields", array_of(summary.references));
}

// Returns the tasks that a task with a data set becomes. Errors: UserError.
std::vector<toml::table> expanded(toml::table task) {
  refuse_files(task, {"source", "references", "jsonl"});
  const std::string name = dataset_of(task);
  const NamedDataset set = find_dataset(name);
  const auto [source, target] = set.pair(task["direction"].value_or(std::string()));
  task.insert("name", name);
  std::vector<toml::table> tasks;
  if (!set.jsonl()) {
    set_metric(task, set.parallel() ? "bleu" : "none");
    task.insert("source", portable_path(set.parallel() ? source : set.file));
    const bool scored = task["metric"]["name"].value<std::string>() != "none";
    if (set.parallel() && scored) task.insert("references", array_of({portable_path(target)}));
    if (!set.parallel()) task.insert("separator", document_separator(set.file));
    tasks.push_back(std::move(task));
    return tasks;
  }
  const JsonlSummary summary = summarize_jsonl(set.file);
  for (const DatasetCategory& category : wanted_categories(task, set, summary.categories)) {
    toml::table& one = tasks.emplace_back(task);
    one.insert_or_assign("name", task["name"].value_or(set.name) + "." + category.name);
    one.insert_or_assign("categories", array_of({category.name}));
    fill_in_jsonl(one, set, summary, category);
  }
  if (summary.categories.empty()) fill_in_jsonl(tasks.emplace_back(task), set, summary, {});
  return tasks;
}

// Calls action(); adds the problems of a UserError, each with the node's place before its own, and returns false.
template <class Action>
bool collect_problems(const toml::node& node, Problems& problems, const Action& action) {
  try {
    action();
    return true;
  } catch (const UserError& error) {
    const std::string where = location_of(node);
    problems.add_all(error.problems(), where.empty() ? "" : where + ": ");
    return false;
  }
}

// Returns the files of an input by their keys, named or not.
std::vector<std::pair<const char*, fs::path>> files_of(const TextInput& input) {
  return {{"source", input.source}, {"target", input.target}, {"jsonl", input.jsonl}, {"text", input.text}};
}

// Refuses a pipe: text is read more than once, to count lines and to hash files, and the second pass over a pipe would
// silently find less text.
void require_regular_file(const fs::path& file) {
  std::error_code ignored;
  const auto type = fs::status(file, ignored).type();
  if (type == fs::file_type::fifo || type == fs::file_type::character || type == fs::file_type::socket) {
    throw UserError({.where = file.string(),
                     .what = "is a pipe or a device, but text is read twice",
                     .expected = "a regular file",
                     .hint = "write the text to a file first"});
  }
}

}  // namespace

fs::path data_folder() {
  const char* chosen = std::getenv(kDataVariable);
  return chosen && *chosen ? chosen : "../shared/data";
}

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
  return {.where = where,
          .what = "a file or model directory is missing",
          .expected = "a file or folder",
          .found = real_path(text) + " (not there)",
          .hint = hint};
}

std::vector<std::string> NamedDataset::directions() const {
  std::vector<std::string> directions;
  for (const auto& [from, source] : languages) {
    for (const auto& [into, target] : languages) {
      if (from != into) directions.push_back(from + "-" + into);
    }
  }
  return directions;
}

std::pair<fs::path, fs::path> NamedDataset::pair(const std::string& direction) const {
  const std::vector<std::string> known = directions();
  if (known.empty() && direction.empty()) return {};
  if (std::ranges::find(known, direction) != known.end()) {
    const size_t dash = direction.find('-');
    return {languages.at(direction.substr(0, dash)), languages.at(direction.substr(dash + 1))};
  }
  Problem problem = unknown_name("direction", direction, known);
  problem.where = "data set " + name;
  if (known.empty()) problem.what = "only parallel text has a direction";
  if (direction.empty()) {
    problem.what = "parallel text needs a direction";
    problem.found = "no `direction`";
    problem.hint = "write direction = \"" + known.front() + "\" beside `dataset`";
  }
  throw UserError(problem);
}

std::vector<NamedDataset> datasets_in(const fs::path& folder) {
  std::vector<NamedDataset> sets;
  add_files(folder, "", sets);
  for (const fs::path& entry : entries_of(folder)) {
    if (fs::is_directory(entry)) add_files(entry, entry.filename().string(), sets);
  }
  std::ranges::sort(sets, {}, &NamedDataset::name);
  return sets;
}

NamedDataset find_dataset(const std::string& name) {
  const fs::path folder = data_folder();
  std::vector<NamedDataset> in_folder;
  std::vector<std::string> known;
  for (const NamedDataset& set : datasets_in(folder)) {
    if (set.name == name) return set;
    if (set.name.starts_with(name + "/")) in_folder.push_back(set);
    known.push_back(set.name);
  }
  if (in_folder.size() == 1) return in_folder.front();
  Problem problem = unknown_name("data set", name, known);
  problem.where = "data folder " + folder.string() + (fs::is_directory(folder) ? "" : " (not there)");
  if (problem.hint.empty()) {
    problem.hint = fmt::format("`draftsmith data list` shows what is there; {} names another folder", kDataVariable);
  }
  throw UserError(problem);
}

std::string document_separator(const fs::path& file) {
  constexpr int kBeginning = 1000;  // lines
  const std::string separator = "<|endoftext|>";
  LineReader lines(file);
  std::string line;
  for (int i = 0; i < kBeginning && lines.next(line); ++i) {
    if (line == separator) return separator;
  }
  return "";
}

JsonlSummary summarize_jsonl(const fs::path& file) {
  LineReader lines(file);
  std::optional<JsonlSummary> summary;
  for (std::string line; lines.next(line);) {
    if (const auto bad = invalid_utf8_offset(line)) throw_invalid_utf8(lines.where(), line, *bad);
    if (is_blank(line)) continue;
    const json object = parse_object_line(line, lines.where());
    if (!summary) summary = by_convention(object, file);
    add_category(object, summary->categories);
  }
  if (summary) return *summary;
  throw UserError({.where = file.string(), .what = "the data set is empty", .expected = "one JSON object a line"});
}

TextInput with_dataset(const TextInput& input) {
  if (input.dataset.empty()) return input;
  for (const auto& [key, file] : files_of(input)) {
    if (!file.empty()) refuse_file(input.dataset, key, "text input");
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
  const auto has_files = [](const toml::node& node) { return dataset_of(node).empty(); };
  if (tasks == nullptr || std::all_of(tasks->begin(), tasks->end(), has_files)) return;
  toml::array filled;
  for (toml::node& node : *tasks) {
    const bool done = !has_files(node) && collect_problems(node, problems, [&] {
      for (toml::table& one : expanded(*node.as_table())) filled.push_back(std::move(one));
    });
    if (!done) node.visit([&](auto& value) { filled.push_back(std::move(value)); });
  }
  suite.insert_or_assign("task", std::move(filled));
}

void fill_in_dataset_corpus(toml::table& corpus, Problems& problems) {
  const std::string name = dataset_of(corpus);
  if (name.empty()) return;
  collect_problems(corpus, problems, [&] {
    refuse_files(corpus, {"source", "target", "jsonl", "text"});
    const TextInput input = with_dataset({.dataset = name, .direction = corpus["direction"].value_or(std::string())});
    for (const auto& [key, file] : files_of(input)) {
      if (!file.empty()) corpus.insert(key, portable_path(file));
    }
    if (!input.separator.empty()) corpus.insert("separator", input.separator);
    if (input.jsonl.empty()) return;
    if (!input.messages.empty()) {
      corpus.insert("messages", input.messages);
      return;
    }
    corpus.insert("source_field", input.source_field);
    corpus.insert("target_fields", array_of(input.target_fields));
  });
}

Fields<TextInput> TextInput::fields() {
  return Fields<TextInput>("text input")
      .add("dataset", &TextInput::dataset,
           "Data set by name, instead of files: \"multi30k/train\"; `draftsmith data list` shows what is there.")
      .add("direction", &TextInput::direction, "With a data set of parallel text: source and target, \"de-en\".")
      .add("source", &TextInput::source, "Parallel text: file with one source per line.")
      .add("target", &TextInput::target, "Parallel text: file with one target per line.")
      .add("jsonl", &TextInput::jsonl, "File with one JSON object per line.")
      .add("source_field", &TextInput::source_field,
           "Field of the JSON objects with the source; turns[0] is the first element of a list; empty: no source.")
      .add("target_fields", &TextInput::target_fields,
           "Fields with the targets; several fields give several references.")
      .add(
          "messages", &TextInput::messages,
          "Field of the JSON objects with a conversation, a list of messages with role and content, in place of source "
          "and targets. Each message of the assistant is an example, and alone is learned; the text before it, as the "
          "chat template writes it, is the prompt. Fields tools and documents are passed to the template.")
      .add("chat_template", &TextInput::chat_template,
           "With messages: model directory whose chat template is taken, or a .jinja file; default: the tokenizer's.")
      .add("text", &TextInput::text, "Plain text: file of targets without sources.")
      .add("separator", &TextInput::separator,
           "Line that separates documents of plain text; empty: every line is a document.");
}

TextInput with_template_of(const std::filesystem::path& tokenizer, TextInput input) {
  if (!input.messages.empty() && input.chat_template.empty()) input.chat_template = tokenizer;
  return input;
}

std::unique_ptr<ExampleStream> open_text(const TextInput& input, const TextPolicies& policies) {
  const bool parallel = !input.source.empty() || !input.target.empty();
  const int kinds = (parallel ? 1 : 0) + (input.jsonl.empty() ? 0 : 1) + (input.text.empty() ? 0 : 1);
  if (kinds != 1 || input.source.empty() != input.target.empty()) {
    throw UserError({.where = "text input",
                     .what = kinds > 1    ? "more than one kind of input"
                             : kinds == 0 ? "no input"
                                          : "half of a pair of parallel files",
                     .expected = "source and target, or jsonl, or text"});
  }
  for (const auto& [key, file] : files_of(input)) require_regular_file(file);
  if (!input.messages.empty()) {
    if (input.jsonl.empty()) {
      throw UserError({.where = "text input", .what = "conversations stand in jsonl files", .expected = "jsonl"});
    }
    return open_chat(input.jsonl, input.messages, load_chat_template(input.chat_template), policies);
  }
  if (parallel) return open_parallel(input.source, input.target, policies);
  if (!input.text.empty()) return open_plain_text(input.text, input.separator, policies);
  return open_jsonl(input.jsonl, {input.source_field, input.target_fields}, policies);
}

}  // namespace draftsmith::data
