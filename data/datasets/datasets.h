// Data sets by name: text in the data folder.
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
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/toml.h"

namespace draftsmith::data {

// Environment variable that names the data folder; it is ../shared/data otherwise.
inline constexpr const char* kDataVariable = "DRAFTSMITH_DATA";
std::filesystem::path data_folder();

// Returns the path that a text names: the data folder in place of "$DATA" at its beginning.
std::string real_path(const std::string& text);
// Returns the problem of a path that does not exist, as `text` in the file and line `where` names it. Its hint says
// what the path is relative to, or that the data folder is missing.
Problem missing_path(const std::string& text, const std::string& where);

// Named text: parallel text, or one file of jsonl or plain text.
struct NamedDataset {
  using Files = std::pair<std::filesystem::path, std::filesystem::path>;

  std::string name;
  std::map<std::string, Files> directions = {};  // source and target of parallel text, by "de-en"; else empty
  std::filesystem::path file = {};               // jsonl or plain text

  bool parallel() const { return !directions.empty(); }
  bool jsonl() const { return file.extension() == ".jsonl"; }
  // Returns the files of a direction, which must be empty if the text is not parallel. Errors: UserError that names all
  // directions.
  Files pair(const std::string& direction) const;
};

// Returns the data sets of a folder and of its folders, sorted by name: files X.LL of one text X in several languages
// LL (two or three letters), *.jsonl, *.txt, *.raw and *.tokens. Names that begin with "_" or "." are ignored.
std::vector<NamedDataset> datasets_in(const std::filesystem::path& folder);
// Returns the data set of that name. Errors: UserError with the nearest names, or with the way to get the data.
NamedDataset find_dataset(const std::string& name);

// Returns the line that separates the documents of a plain text: "<|endoftext|>" if its beginning has such a line, else
// an empty text.
std::string document_separator(const std::filesystem::path& file);

// Content of a jsonl file, or of its lines of one category, by the conventions of known data sets.
struct JsonlPart {
  std::string name = {};    // value of the field `category`; empty: all lines
  std::string source = {};  // a field
  std::vector<std::string> references = {};
  std::string metric = "none";  // bleu, rouge or none
  bool chat() const { return source == "messages"; }
};

// Reads a file once; the first line tells the fields. Returns the whole file, and then its categories in the order of
// the file. Errors: UserError that names a line that is no JSON object, an empty file, and fields of no known
// convention.
std::vector<JsonlPart> parts_of_jsonl(const std::filesystem::path& file);

// Makes a suite's single table `task` a list, whose tasks overlays find by name or by data set.
void list_tasks(toml::table& suite);

// Fills in the tasks of a suite that have a data set. One with categories becomes a task for each category, or for each
// of `categories`. Paths in the data folder are written as "$DATA/...". Adds problems for unknown names, directions and
// categories, and for keys that say twice where text comes from.
void fill_in_dataset_tasks(toml::table& suite, Problems& problems);
// Fills in a corpus's keys: those of TextInput. Adds problems as above.
void fill_in_dataset_corpus(toml::table& corpus, Problems& problems);

}  // namespace draftsmith::data
