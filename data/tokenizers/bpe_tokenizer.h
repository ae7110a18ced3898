// Tokenizer of byte pair encoding, composed of the parts of a tokenizer.json or of GPT-2's files. It finds added
// tokens, normalises the text between them, cuts it into words and merges each word.
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
  std::vector<AddedToken> added{};  // id -1: the next free id
  TextNormalizer normalizer{};
  PreTokenizer pre_tokenizer{};
  TokenDecoder decoder{};
  TextFrame frame{};
  bool add_bos = false;  // adds BOS to the frame
  // Contents of the special tokens; empty: no such token.
  std::string bos{};
  std::string eos{};
  std::string unk{};
  std::string pad{};
};

// Errors: UserError for a model that BpeModel refuses, and for an added token whose id differs from the one that
// `tokenizers` gives it.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts);

}  // namespace draftsmith::data
