#include <charconv>
#include <sstream>

#include "base/error.h"
#include "data/tokenizers/bpe.h"
#include "data/tokenizers/sentencepiece.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/tokenizer_files.h"

namespace draftsmith::data {

namespace {

namespace fs = std::filesystem;

constexpr const char* kJson = "tokenizer.json";
constexpr const char* kVocabulary = "vocab.json";
constexpr const char* kMerges = "merges.txt";

fs::path sentencepiece_file(const fs::path& directory) {
  for (const char* name : {"spiece.model", "tokenizer.model"}) {
    if (fs::exists(directory / name)) return directory / name;
  }
  return {};
}

bool has_gpt2_files(const fs::path& directory) {
  return fs::exists(directory / kVocabulary) && fs::exists(directory / kMerges);
}

std::unique_ptr<Tokenizer> load_file(const fs::path& file) {
  if (file.filename() == kVocabulary || file.filename() == kMerges) {
    return make_bpe_tokenizer(read_gpt2_files(file.parent_path() / kVocabulary, file.parent_path() / kMerges));
  }
  if (file.extension() == ".json") return make_bpe_tokenizer(read_tokenizer_json(file));
  return load_sentencepiece(file);
}

}  // namespace

bool has_tokenizer(const fs::path& directory) {
  return !sentencepiece_file(directory).empty() || fs::exists(directory / kJson) || has_gpt2_files(directory);
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& file_or_directory) {
  if (!fs::is_directory(file_or_directory)) return load_file(file_or_directory);
  const fs::path& directory = file_or_directory;
  const bool json = fs::exists(directory / kJson);
  const fs::path model = sentencepiece_file(directory);
  if (!model.empty()) {
    const bool other_files = json || has_gpt2_files(directory);
    const bool json_first = json && is_bpe_json(directory / kJson);
    if (!json_first && (!other_files || is_sentencepiece(model))) return load_sentencepiece(model);
  }
  if (json) return load_file(directory / kJson);
  if (has_gpt2_files(directory)) return load_file(directory / kVocabulary);
  throw UserError({.where = directory.string(),
                   .what = "no tokenizer in this directory",
                   .expected = "spiece.model, tokenizer.model, tokenizer.json, or vocab.json with merges.txt"});
}

std::vector<int64_t> parse_token_ids(const std::string& line, int64_t vocabulary, const std::string& where,
                                     const std::string& hint) {
  constexpr size_t kShown = 60;
  std::vector<int64_t> ids;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= vocabulary) {
      throw UserError({.where = where,
                       .what = "not a token id",
                       .expected = "ids in 0.." + std::to_string(vocabulary - 1) + ", separated by blanks",
                       .found = word.substr(0, kShown),
                       .hint = hint});
    }
    ids.push_back(id);
  }
  return ids;
}

}  // namespace draftsmith::data
