// A tokenizer of byte pair encoding, put together from the parts of a tokenizer.json or of GPT-2's files: added tokens
// are found, the text between them is normalised and cut into words, words are merged.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizers/added_tokens.h"
#include "data/tokenizers/bpe_model.h"
#include "data/tokenizers/pre_tokenizer.h"
#include "data/tokenizers/text_normalizer.h"
#include "data/tokenizers/token_decoder.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

struct BpeParts {
  std::filesystem::path file{};
  std::vector<std::filesystem::path> files{};
  std::string hash{};
  BpeDescription model{};
  std::vector<AddedToken> added{};  // id -1: whichever is next
  TextNormalizer normalizer{};
  PreTokenizer pre_tokenizer{};
  TokenDecoder decoder{};
  TextFrame frame{};
  bool add_bos = false;  // to the frame
  // Contents of special tokens; empty: none.
  std::string bos{};
  std::string eos{};
  std::string unk{};
  std::string pad{};
};

// Errors: UserError for a model that BpeModel refuses, and added tokens whose ids are not those that `tokenizers` gives
// them.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts);

}  // namespace draftsmith::data
