// Tokenizers of byte pair encoding (Sennrich et al. 2016), composed of the parts of a tokenizer.json or of GPT-2's
// files. They find added tokens, normalise the text between them, cut it into words and merge each word.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/tokenizers/pre_tokenizer.h"
#include "data/tokenizers/token_decoder.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// Added tokens: texts that have one id of their own. They are found before a text is normalised and cut into words;
// tokens with the flag `normalized` are found after normalisation.
struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;  // matches only without adjacent word characters
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = false;   // matched after normalisation
  bool special = false;      // decodes to no text
};

// The model as a file describes it.
struct BpeDescription {
  std::vector<std::pair<std::string, int32_t>> pieces;      // any order
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  std::string unk_token{};                                  // empty: characters without a piece are dropped
  bool fuse_unk = false;                                    // one <unk> for adjacent unknown characters
  bool byte_fallback = false;                               // bytes such as <0xE4> instead of <unk>
  bool ignore_merges = false;                               // a word that is a piece becomes that piece
  bool byte_level = true;                                   // words are bytes, pieces are byte-level characters
};

// Largest id that a file may use.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 21) - 1;

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

// Errors: UserError for a model that contradicts itself: an id that is negative, too large or given twice, a merge
// of missing pieces, an unknown token that is no piece, and for an added token whose id differs from the one that
// `tokenizers` gives it.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts);

}  // namespace draftsmith::data
