// Data sets by name: text in the data folder, and the test sets that sacreBLEU has downloaded.
//
//   multi30k/test_2016_flickr   test_2016_flickr.de and .en in the folder multi30k of the data folder
//   dialogsum/dev               dialogsum/dialogsum.dev.jsonl: the folder's name is left out of the file's
//   spec_bench                  a folder with a single data set names it
//   sacrebleu/wmt14             wmt14.de-en.src and .ref in ~/.sacrebleu/wmt14 (or $SACREBLEU/wmt14)
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace draftsmith::data {

// Environment variable that names the data folder.
inline constexpr const char* kDataVariable = "DRAFTSMITH_DATA";

// Text in one language and its translations, line by line.
struct Direction {
  std::filesystem::path source;
  std::vector<std::filesystem::path> references;
};

// Named text: parallel text with its directions, or one file of jsonl or plain text.
struct NamedDataset {
  std::string name;
  std::map<std::string, Direction> directions = {};  // parallel text, by "de-en"; else empty
  std::filesystem::path file = {};                   // jsonl or plain text

  bool parallel() const { return !directions.empty(); }
  bool jsonl() const { return file.extension() == ".jsonl"; }
  // Returns the direction of that name; an empty name means the only one. Errors: UserError that names all directions.
  const Direction& direction(const std::string& wanted) const;
};

// Returns the folder of $DATA: the environment variable DRAFTSMITH_DATA, else ../shared/data.
std::filesystem::path data_folder();
// Returns the folder of sacreBLEU's downloads: the environment variable SACREBLEU, else ~/.sacrebleu.
std::filesystem::path sacrebleu_folder();

// Returns the data sets of a folder and of its folders, sorted by name: files X.LL of one text X in several languages
// LL (two or three letters), *.jsonl, *.txt, *.raw and *.tokens. Names that begin with "_" or "." are ignored.
std::vector<NamedDataset> datasets_in(const std::filesystem::path& folder);
// Returns the downloaded test sets of sacreBLEU, named "sacrebleu/...".
std::vector<NamedDataset> sacrebleu_datasets(const std::filesystem::path& folder);

// Returns the data set of that name. Errors: UserError with the nearest names, or with the way to get the data.
NamedDataset find_dataset(const std::string& name);

// Returns the line that separates the documents of a plain text: "<|endoftext|>" if its beginning has such a line, else
// an empty text.
std::string document_separator(const std::filesystem::path& file);

}  // namespace draftsmith::data
