// Tokenizers composed of the parts of a tokenizer.json or of GPT-2's files. They find added tokens, normalise the text
// between them and cut it into words, which byte pair encoding (Sennrich et al. 2016) or a unigram model (Kudo 2018)
// divides into pieces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizers/pre_tokenizer.h"
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

// Finds the leftmost and longest of a set of added tokens.
class AddedTokenFinder {
 public:
  // A part of a text: one added token, or text between added tokens.
  struct Segment {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = -1;  // -1: text
  };

  // Adds a token under the text `pattern`: its content, normalised if the token has that flag. Ignores an empty pattern
  // and one that was added before.
  void add(const std::string& pattern, const AddedToken& token);
  // Returns all segments of the text, in order.
  std::vector<Segment> split(std::string_view text) const;

 private:
  using Tokens = std::map<std::string, AddedToken, std::less<>>;  // by pattern
  Tokens::const_iterator longest(std::string_view text, size_t at) const;

  Tokens tokens_;
  std::array<std::set<size_t, std::greater<>>, 256> lengths_;  // of the patterns that begin with a byte
};

// The model as a file describes it.
struct BpeDescription {
  std::vector<std::pair<std::string, int32_t>> pieces;      // any order
  std::vector<double> scores{};                             // by id: a unigram model, without merges; empty: BPE
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  std::string unk_token{};                                  // empty: characters without a piece are dropped
  bool fuse_unk = false;                                    // one <unk> for adjacent unknown characters
  bool byte_fallback = false;                               // bytes such as <0xE4> instead of <unk>
  bool ignore_merges = false;                               // a word that is a piece becomes that piece
  bool byte_level = true;                                   // words are bytes, pieces are byte-level characters
};

// Largest id that a file may use.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 21) - 1;

// The byte-level alphabet (Radford et al. 2019): one printable character stands for each byte, so that pieces of any
// bytes are valid text. Returns the bytes of a piece, or nothing if one of its characters stands for no byte.
std::optional<std::string> bytes_of_piece(std::string_view piece);

// Returns the piece of the bytes.
std::string piece_of_bytes(std::string_view bytes);

// Returns the bytes as valid UTF-8, with U+FFFD in place of ill-formed ones by the given policy.
std::string repair_utf8(std::string_view bytes, InvalidBytes policy);

// Decoders of tokenizer.json that the families use, from pieces to text. ByteLevel joins the bytes of all pieces. The
// chain of Llama's SentencePiece is Replace, ByteFallback, Fuse, Strip. Metaspace is that of unigram models.
struct TokenDecoder {
  // Returns the text or bytes of a piece, which do not depend on its position.
  TextPiece piece(std::string_view piece) const;
  // Returns the text of such pieces in order.
  std::string join(const std::vector<const TextPiece*>& pieces) const;
  // Returns the rules for streams that agree with join().
  StreamRules rules() const;

  // Joins the bytes of all pieces, by the byte-level alphabet, and repairs invalid UTF-8. A piece with a character
  // outside the alphabet stands for its own UTF-8.
  bool byte_level = false;
  InvalidBytes invalid = InvalidBytes::kReplaceParts;  // of byte_level
  // Decodes pieces such as <0xE4> to bytes. A run of bytes that is not valid UTF-8 becomes one U+FFFD for each byte.
  bool byte_fallback = false;
  bool drops_first = false;                                     // drops the spaces of the first piece
  size_t strip = 0;                                             // most spaces that are dropped at the text's start
  std::vector<std::pair<std::string, std::string>> replaced{};  // texts in each piece, and by what
};

struct BpeParts {
  std::filesystem::path file{};
  std::string hash{};
  BpeDescription model{};
  std::vector<AddedToken> added{};  // id -1: the next free id
  TextNormalizer normalizer{};
  PreTokenizer pre_tokenizer{};
  TokenDecoder decoder{};
  TextFrame frame{};
  bool add_bos = false;  // adds BOS to the frame
  bool add_eos = false;  // adds EOS to the frame
  // Contents of the special tokens; empty: no such token.
  std::string bos{};
  std::string eos{};
  std::string unk{};
  std::string pad{};
};

// Errors: UserError for a model that contradicts itself: an id that is negative, too large or given twice, a merge
// of missing pieces, an unknown token that is no piece, a unigram model without one, and for an added token whose id
// differs from the one that `tokenizers` gives it.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts);

}  // namespace draftsmith::data
