// Text that a user names, by files and fields or as a data set in the data folder.
//
//   multi30k/test_2016_flickr   test_2016_flickr.de and .en in the folder multi30k of the data folder
//   dialogsum/dev               dialogsum/dialogsum.dev.jsonl: the folder's name is left out of the file's
//   spec_bench                  a folder with a single data set names it
//
// The key `dataset` of a suite's task and of a corpus fills in the keys that follow from the name; a key that is there
// wins. A path "$DATA/multi30k/val.de" is multi30k/val.de in the data folder.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/toml.h"
#include "data/text/readers.h"

namespace draftsmith::data {

// Environment variable that names the data folder; it is ../shared/data otherwise.
inline constexpr const char* kDataVariable = "DRAFTSMITH_DATA";
std::filesystem::path data_folder();

// Returns the path that a text names: the data folder in place of "$DATA" at its beginning.
std::string real_path(const std::string& text);
// Returns the problem of a path that does not exist, as `text` in the file and line `where` names it. Its hint says
// what the path is relative to, or that the data folder is missing.
Problem missing_path(const std::string& text, const std::string& where);

// The raw text that a user names, by files and fields: exactly one of parallel files, a jsonl file and plain text.
struct TextInput {
  std::string dataset{};           // name in the data folder, which gives the rest
  std::string direction{};         // of a data set of parallel text, "de-en"
  std::filesystem::path source{};  // parallel text
  std::filesystem::path target{};
  std::filesystem::path jsonl{};  // with named fields
  std::string source_field = "source";
  std::vector<std::string> target_fields = {"target"};
  std::string messages{};                 // field with a conversation, in place of source and targets
  std::filesystem::path chat_template{};  // a model directory, or a file in it
  std::filesystem::path text{};           // plain text: targets without sources
  std::string separator{};                // line that separates documents of plain text; empty: each line is a document
  static Fields<TextInput> fields();
};

// Returns the input with the chat template of its tokenizer (a file or a model directory), if it has conversations and
// no template yet.
TextInput with_template_of(const std::filesystem::path& tokenizer, TextInput input);

// Opens the input. Errors: UserError if it names no kind or several, half of a parallel pair, or a pipe.
std::unique_ptr<ExampleStream> open_text(const TextInput& input, const TextPolicies& policies);

// Named text: parallel text with its languages, or one file of jsonl or plain text.
struct NamedDataset {
  std::string name;
  std::map<std::string, std::filesystem::path> languages = {};  // parallel text, by "de"; else empty
  std::filesystem::path file = {};                              // jsonl or plain text

  bool parallel() const { return !languages.empty(); }
  bool jsonl() const { return file.extension() == ".jsonl"; }
  std::vector<std::string> directions() const;
  // Returns source and target of a direction "de-en"; it must be empty if the text is not parallel. Errors: UserError
  // that names all directions.
  std::pair<std::filesystem::path, std::filesystem::path> pair(const std::string& direction) const;
};

// Returns the data sets of a folder and of its folders, sorted by name: files X.LL of one text X in several languages
// LL (two or three letters), *.jsonl, *.txt, *.raw and *.tokens. Names that begin with "_" or "." are ignored.
std::vector<NamedDataset> datasets_in(const std::filesystem::path& folder);
// Returns the data set of that name. Errors: UserError with the nearest names, or with the way to get the data.
NamedDataset find_dataset(const std::string& name);

// Returns the line that separates the documents of a plain text: "<|endoftext|>" if its beginning has such a line, else
// an empty text.
std::string document_separator(const std::filesystem::path& file);

// Lines of a jsonl file with one value of the field `category`.
struct DatasetCategory {
  std::string name = {};
  bool has_references = true;  // each line has the field `reference`
};

// Content of a jsonl file, by the conventions of known data sets.
struct JsonlSummary {
  std::string source = {};  // a field
  std::vector<std::string> references = {};
  std::string metric = "none";  // bleu, rouge or none
  bool chat() const { return source == "messages"; }
  std::vector<DatasetCategory> categories = {};  // in the order of the file; empty without the field
};

// Reads a file once; the first line tells the fields. Errors: UserError that names a line that is no JSON object, an
// empty file, and fields of no known convention.
JsonlSummary summarize_jsonl(const std::filesystem::path& file);

// Makes a suite's single table `task` a list, whose tasks overlays find by name or by data set.
void list_tasks(toml::table& suite);

// Fills in the tasks of a suite that have a data set. One with categories becomes a task for each category, or for each
// of `categories`. Paths in the data folder are written as "$DATA/...". Adds problems for unknown names, directions and
// categories, and for keys that say twice where text comes from.
void fill_in_dataset_tasks(toml::table& suite, Problems& problems);
// Fills in a corpus's keys: those of TextInput. Adds problems as above.
void fill_in_dataset_corpus(toml::table& corpus, Problems& problems);
// Returns the input with the files and fields of its data set, or the input itself if it names none. Errors: as above.
TextInput with_dataset(const TextInput& input);

}  // namespace draftsmith::data
