// The small files beside a tokenizer's own, as Transformers reads them: tokenizer_config.json, special_tokens_map.json,
// added_tokens.json.
#pragma once

#include <filesystem>
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
  // Contents of the special tokens; empty where the files name none.
  std::string bos{};
  std::string eos{};
  std::string unk{};
  std::string pad{};
  // added_tokens_decoder, or else added_tokens.json, in order of their ids; then the special tokens not among them,
  // with id -1.
  std::vector<AddedToken> added{};
};

// What the files of a directory say; absent files say nothing. Errors: UserError for malformed ones.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& directory);

// What Transformers puts around a text tokenized with the SentencePiece model of a directory: LlamaTokenizer a BOS,
// T5Tokenizer an EOS, unless tokenizer_config.json says otherwise.
TextFrame sentencepiece_frame(const std::filesystem::path& directory, int32_t bos, int32_t eos);

// A tokenizer's file and those that are beside it in its directory.
std::vector<std::filesystem::path> with_configuration_files(const std::filesystem::path& file);

}  // namespace draftsmith::data
