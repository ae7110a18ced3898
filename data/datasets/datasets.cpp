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

constexpr const char* kSacrebleu = "sacrebleu/";

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

using Languages = std::map<std::string, fs::path>;  // by "de"

std::map<std::string, Direction> directions_between(const Languages& languages) {
  std::map<std::string, Direction> directions;
  for (const auto& [from, source] : languages) {
    for (const auto& [into, target] : languages) {
      if (from != into) directions[from + "-" + into] = {source, {target}};
    }
  }
  return directions;
}

void add_files(const fs::path& folder, const std::string& folder_name, std::vector<NamedDataset>& sets) {
  std::map<std::string, Languages> parallel;  // by stem
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
    if (languages.size() < 2) continue;
    sets.push_back({.name = dataset_name(folder_name, stem), .directions = directions_between(languages)});
  }
}

std::vector<std::string> names_of(const std::vector<NamedDataset>& sets) {
  std::vector<std::string> names;
  for (const NamedDataset& set : sets) names.push_back(set.name);
  return names;
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

// Beginning of the prompts that SPEED-Bench leaves out for their licence.
constexpr const char* kPlaceholder = "FULL BENCHMARK DATA SHOULD BE FETCHED";

// Fields of a kind of data sets. The first convention whose fields an object has is the one that applies.
struct Convention {
  const char* source;
  const char* reference;  // nullptr: prompts without references
  const char* metric;
};

constexpr std::array<Convention, 16> kConventions{{{"messages", nullptr, "none"},
                                                   {"turns[0]", nullptr, "none"},
                                                   {"dialogue", "summary", "rouge"},
                                                   {"dialogue", "summary1", "rouge"},
                                                   {"article", "highlights", "rouge"},
                                                   {"article", "summary", "rouge"},
                                                   {"document", "summary", "rouge"},
                                                   {"text", "summary", "rouge"},
                                                   {"source", "target", "bleu"},
                                                   {"prompt", nullptr, "none"},
                                                   {"question", nullptr, "none"},
                                                   {"article", nullptr, "none"},
                                                   {"dialogue", nullptr, "none"},
                                                   {"document", nullptr, "none"},
                                                   {"source", nullptr, "none"},
                                                   {"text", nullptr, "none"}}};

// Returns the key of a field: "turns" of "turns[0]".
std::string key_of(const std::string& field) {
  return field.substr(0, field.find('['));
}

// Returns the fields summary1, summary2, ... of an object, for a first one that ends in "1".
std::vector<std::string> numbered_fields(const json& object, const std::string& first) {
  if (!first.ends_with('1')) return {first};
  std::vector<std::string> fields;
  const std::string stem = first.substr(0, first.size() - 1);
  for (int i = 1; object.contains(stem + std::to_string(i)); ++i) fields.push_back(stem + std::to_string(i));
  return fields;
}

void apply_convention(const json& object, JsonlSummary& summary) {
  for (const auto& [key, value] : object.items()) summary.fields.push_back(key);
  for (const Convention& one : kConventions) {
    if (!object.contains(key_of(one.source)) || (one.reference && !object.contains(one.reference))) continue;
    summary.source = one.source;
    summary.metric = one.metric;
    if (one.reference) summary.references = numbered_fields(object, one.reference);
    // Lists of sentences are documents and their summaries, not sentences and their translations.
    if (summary.metric == "bleu" && object[one.source].is_array()) summary.metric = "rouge";
    return;
  }
}

void require_fields(const JsonlSummary& summary, const json& object, const std::string& where) {
  std::vector<std::string> fields = summary.references;
  if (!summary.source.empty()) fields.push_back(key_of(summary.source));
  for (const std::string& field : fields) {
    if (object.contains(field) && !object[field].is_null()) continue;
    const bool reference = field != key_of(summary.source);
    throw UserError({.where = where,
                     .what = fmt::format("the line has no {} \"{}\"", reference ? "reference" : "source", field),
                     .expected = "the field on every line, as on the first",
                     .found = "none",
                     .hint = "use the lines before it (limit), or name other fields with `jsonl`"});
  }
}

void count_turns(const json& object, JsonlSummary& summary) {
  if (!object.contains("turns") || !object["turns"].is_array()) return;
  const json& turns = object["turns"];
  if (turns.size() > 1) ++summary.further_turns;
  const bool missing = std::any_of(turns.begin(), turns.end(), [](const json& turn) {
    return turn.is_string() && turn.get_ref<const std::string&>().find(kPlaceholder) != std::string::npos;
  });
  if (missing) ++summary.placeholders;
}

void count_category(const json& object, JsonlSummary& summary) {
  if (!object.contains("category") || !object["category"].is_string()) return;
  const std::string name = object["category"].get<std::string>();
  auto found = std::find_if(summary.categories.begin(), summary.categories.end(),
                            [&](const DatasetCategory& category) { return category.name == name; });
  if (found == summary.categories.end()) found = summary.categories.insert(found, {.name = name, .categories = {name}});
  ++found->lines;
  if (object.contains("reference")) ++found->with_reference;
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

const Direction& NamedDataset::direction(const std::string& wanted) const {
  if (wanted.empty() && directions.size() == 1) return directions.begin()->second;
  if (const auto found = directions.find(wanted); found != directions.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [key, files] : directions) known.push_back(key);
  Problem problem = unknown_name("direction", wanted, known);
  problem.where = "data set " + name;
  if (wanted.empty()) {
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

fs::path sacrebleu_folder() {
  if (const char* chosen = std::getenv("SACREBLEU"); chosen && *chosen) return chosen;
  const char* home = std::getenv("HOME");
  return fs::path(home ? home : "") / ".sacrebleu";
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

std::vector<NamedDataset> sacrebleu_datasets(const fs::path& folder) {
  std::vector<NamedDataset> sets;
  for (const fs::path& test_set : entries_of(folder)) {
    // Files are TEST-SET.de-en.src, .ref and, of several references, .ref-A.
    NamedDataset set{.name = kSacrebleu + test_set.filename().string()};
    for (const fs::path& file : entries_of(test_set)) {
      const std::string field = file.extension().string();
      const std::string languages = file.stem().extension().string();
      if (languages.empty() || languages.find('-') == std::string::npos) continue;
      Direction& direction = set.directions[languages.substr(1)];
      if (field == ".src") direction.source = file;
      if (field.starts_with(".ref")) direction.references.push_back(file);
    }
    std::erase_if(set.directions,
                  [](const auto& entry) { return entry.second.source.empty() || entry.second.references.empty(); });
    if (set.parallel()) sets.push_back(std::move(set));
  }
  return sets;
}

NamedDataset find_dataset(const std::string& name) {
  const bool downloaded = name.starts_with(kSacrebleu);
  const fs::path folder = downloaded ? sacrebleu_folder() : data_folder();
  const std::vector<NamedDataset> sets = downloaded ? sacrebleu_datasets(folder) : datasets_in(folder);
  if (const NamedDataset* found = find_in(sets, name)) return *found;
  const bool missing = !fs::is_directory(folder);
  Problem problem = unknown_name("data set", name, names_of(sets));
  problem.where = "data folder " + folder.string() + (missing ? " (not there)" : "");
  if (downloaded) problem.what = "sacreBLEU has not downloaded this test set on this machine";
  if (!problem.hint.empty()) throw UserError(problem);
  if (downloaded) {
    problem.hint = fmt::format("`sacrebleu -t {} -l de-en --echo src` downloads it, with your languages",
                               name.substr(std::string_view(kSacrebleu).size()));
  } else if (missing) {
    problem.hint = fmt::format("set {} to the folder with your data", kDataVariable);
  } else {
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

JsonlSummary summarize_jsonl(const std::filesystem::path& file) {
  LineReader lines(file);
  JsonlSummary summary;
  for (std::string line; lines.next(line);) {
    if (const auto bad = invalid_utf8_offset(line)) throw_invalid_utf8(lines.where(), line, *bad);
    if (is_blank(line)) continue;
    const json object = parse_object_line(line, lines.where());
    if (summary.lines == 0) apply_convention(object, summary);
    require_fields(summary, object, lines.where());
    count_turns(object, summary);
    count_category(object, summary);
    ++summary.lines;
  }
  if (summary.lines > 0) return summary;
  throw UserError({.where = file.string(), .what = "the data set is empty", .expected = "one JSON object a line"});
}

namespace {

// Refuses a pipe: text is read more than once, to count lines and to hash files, and the second pass over a pipe would
// silently find less text.
void require_regular_file(const std::filesystem::path& file) {
  std::error_code ignored;
  const auto type = std::filesystem::status(file, ignored).type();
  using std::filesystem::file_type;
  if (type == file_type::fifo || type == file_type::character || type == file_type::socket) {
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
      .add("join", &TextInput::join, "Separator of the elements of fields that are lists of strings.")
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
  return open_jsonl(input.jsonl, {input.source_field, input.target_fields, input.join}, policies);
}

}  // namespace draftsmith::data
