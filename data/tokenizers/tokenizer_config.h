// Configuration files beside a tokenizer's file, as Transformers reads them: tokenizer_config.json,
// special_tokens_map.json and added_tokens.json.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizers/added_tokens.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

struct TokenizerConfig {
  std::string tokenizer_class{};
  std::optional<bool> add_prefix_space{};
  std::optional<bool> add_bos_token{};
  std::optional<bool> add_eos_token{};
  std::optional<int64_t> extra_ids{};  // sentinels that T5Tokenizer adds behind the pieces
  // Contents of the special tokens; empty if the files name none.
  std::string bos{};
  std::string eos{};
  std::string unk{};
  std::string pad{};
  // Tokens of added_tokens_decoder or else of added_tokens.json, in order of their ids; then all other special tokens,
  // with id -1.
  std::vector<AddedToken> added{};
};

// Reads the files of a directory; missing files are ignored. Errors: UserError for malformed files.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& directory);

// Returns the texts of the directory's special tokens by their keys: bos_token, eos_token and others. Errors: as above.
std::map<std::string, std::string> special_token_texts(const std::filesystem::path& directory);

// Returns the ids that Transformers adds to a text with the SentencePiece model of a directory: LlamaTokenizer BOS,
// T5Tokenizer EOS, unless tokenizer_config.json says otherwise.
TextFrame sentencepiece_frame(const std::filesystem::path& directory, int32_t bos, int32_t eos);

// Returns the upper bound of the ids that Transformers knows with a SentencePiece model of `pieces` pieces: tokens that
// the directory's files add, and the sentinels of a T5Tokenizer, 100 unless extra_ids says otherwise. Without a
// tokenizer class, the model's config.json names the family.
int64_t sentencepiece_writable_ids(const std::filesystem::path& directory, int64_t pieces);

// Returns a tokenizer's file and the configuration files in its directory.
std::vector<std::filesystem::path> with_configuration_files(const std::filesystem::path& file);

}  // namespace draftsmith::data
