#include "data/datasets/datasets.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>

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

std::string hint_of_missing(const std::string& text) {
  if (!text.starts_with(kDataPrefix))
    return fs::path(text).is_absolute() ? "" : "paths are relative to the current directory";
  const fs::path folder = data_folder();
  const bool there = fs::is_directory(folder);
  return fmt::format("$DATA is {}{}; set {} to {}", folder.string(), there ? "" : " (not there)", kDataVariable,
                     there ? "another folder, or correct the path" : "the folder with your data");
}

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

bool is_plain_text(const std::string& ending) {
  return ending == ".txt" || ending == ".raw" || ending == ".tokens";
}

// Returns whether a file's ending may be a language: two or three small letters that no other kind of file has.
bool is_language(const std::string& ending) {
  static const std::set<std::string> kOthers{".md",  ".gz",  ".xz",  ".py",  ".sh",  ".h5",  ".csv",
                                             ".tsv", ".zip", ".bin", ".xml", ".log", ".pdf", ".npy"};
  const bool letters = std::all_of(ending.begin() + (ending.empty() ? 0 : 1), ending.end(),
                                   [](unsigned char c) { return c < 0x80 && std::islower(c); });
  return letters && (ending.size() == 3 || ending.size() == 4) && !kOthers.contains(ending);
}

// Returns the name of a text: FOLDER/STEM, without the folder's own name at the beginning of STEM.
std::string dataset_name(const std::string& folder, std::string stem) {
  if (folder.empty()) return stem;
  for (const char* joint : {".", "_", "-"}) {
    if (stem.starts_with(folder + joint)) {
      stem.erase(0, folder.size() + 1);
      break;
    }
  }
  return folder + "/" + stem;
}

void add_files(const fs::path& folder, const std::string& folder_name, std::vector<NamedDataset>& sets) {
  std::map<std::string, std::map<std::string, fs::path>> parallel;  // by stem and language
  for (const fs::path& file : entries_of(folder)) {
    const std::string ending = file.extension().string();
    if (!fs::is_regular_file(file)) continue;
    if (ending == ".jsonl" || is_plain_text(ending)) {
      sets.push_back({.name = dataset_name(folder_name, file.stem().string()), .file = file});
    } else if (is_language(ending)) {
      parallel[file.stem().string()][ending.substr(1)] = file;
    }
  }
  for (const auto& [stem, languages] : parallel) {
    if (languages.size() > 1) sets.push_back({.name = dataset_name(folder_name, stem), .languages = languages});
  }
}

// Returns the set of that name, or the only one of a folder of that name; nullptr if there is none.
const NamedDataset* find_in(const std::vector<NamedDataset>& sets, const std::string& name) {
  const NamedDataset* found = nullptr;
  int64_t in_folder = 0;
  for (const NamedDataset& set : sets) {
    if (set.name == name) return &set;
    if (!set.name.starts_with(name + "/")) continue;
    found = &set;
    ++in_folder;
  }
  return in_folder == 1 ? found : nullptr;
}

// Fields of a kind of data sets. The first convention whose fields an object has is the one that applies.
struct Convention {
  const char* source;
  const char* reference;  // nullptr: prompts without references
  const char* metric;
};

constexpr std::array<Convention, 11> kConventions{{{"messages", nullptr, "none"},
                                                   {"turns[0]", nullptr, "none"},
                                                   {"dialogue", "summary", "rouge"},
                                                   {"dialogue", "summary1", "rouge"},
                                                   {"article", "highlights", "rouge"},
                                                   {"document", "summary", "rouge"},
                                                   {"source", "target", "bleu"},
                                                   {"prompt", nullptr, "none"},
                                                   {"article", nullptr, "none"},
                                                   {"dialogue", nullptr, "none"},
                                                   {"text", nullptr, "none"}}};

// Returns the fields summary1, summary2, ... of an object, for a first one that ends in "1".
std::vector<std::string> numbered_fields(const json& object, const std::string& first) {
  if (!first.ends_with('1')) return {first};
  std::vector<std::string> fields;
  const std::string stem = first.substr(0, first.size() - 1);
  for (int i = 1; object.contains(stem + std::to_string(i)); ++i) fields.push_back(stem + std::to_string(i));
  return fields;
}

// Returns the summary of a file's first object, without categories. Errors: UserError if no convention fits.
JsonlSummary by_convention(const json& object, const fs::path& file) {
  for (const Convention& one : kConventions) {
    const std::string source = one.source;
    if (!object.contains(source.substr(0, source.find('['))) || (one.reference && !object.contains(one.reference))) {
      continue;
    }
    JsonlSummary summary{.source = source, .metric = one.metric};
    if (one.reference) summary.references = numbered_fields(object, one.reference);
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

}  // namespace

std::string real_path(const std::string& text) {
  return text.starts_with(kDataPrefix) ? data_folder().string() + text.substr(kDataPrefix.size() - 1) : text;
}

Problem missing_path(const std::string& text, const std::string& where) {
  return {.where = where,
          .what = "a file or model directory is missing",
          .expected = "a file or folder",
          .found = real_path(text) + " (not there)",
          .hint = hint_of_missing(text)};
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

fs::path data_folder() {
  const char* chosen = std::getenv(kDataVariable);
  return chosen && *chosen ? chosen : "../shared/data";
}

std::vector<NamedDataset> datasets_in(const fs::path& folder) {
  std::vector<NamedDataset> sets;
  add_files(folder, "", sets);
  for (const fs::path& entry : entries_of(folder)) {
    if (fs::is_directory(entry)) add_files(entry, entry.filename().string(), sets);
  }
  std::sort(sets.begin(), sets.end(), [](const NamedDataset& a, const NamedDataset& b) { return a.name < b.name; });
  return sets;
}

NamedDataset find_dataset(const std::string& name) {
  const fs::path folder = data_folder();
  const std::vector<NamedDataset> sets = datasets_in(folder);
  if (const NamedDataset* found = find_in(sets, name)) return *found;
  const bool missing = !fs::is_directory(folder);
  std::vector<std::string> known;
  for (const NamedDataset& set : sets) known.push_back(set.name);
  Problem problem = unknown_name("data set", name, known);
  problem.where = "data folder " + folder.string() + (missing ? " (not there)" : "");
  if (missing) {
    problem.hint = fmt::format("set {} to the folder with your data", kDataVariable);
  } else if (problem.hint.empty()) {
    problem.hint = fmt::format("`draftsmith data list` shows what is there; {} names another folder", kDataVariable);
  }
  throw UserError(problem);
}

std::string document_separator(const fs::path& file) {
  constexpr std::streamsize kBeginning = 1 << 16;  // bytes
  const std::string separator = "<|endoftext|>";
  std::string text(static_cast<size_t>(kBeginning), '\0');
  std::ifstream input(file, std::ios::binary);
  input.read(text.data(), kBeginning);
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, input.gcount())));
  const bool found = text.starts_with(separator + "\n") || text.find("\n" + separator + "\n") != std::string::npos;
  return found ? separator : "";
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

namespace {

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
  for (const auto* file : {&input.source, &input.target, &input.jsonl, &input.text}) require_regular_file(*file);
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
