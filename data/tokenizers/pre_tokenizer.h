// What a text goes through before byte pair encoding: normalizers and pre-tokenizers of Hugging Face `tokenizers`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace draftsmith::data {

// The normalizers of tokenizer.json that the families use, in order: NFC (GPT-NeoX), Prepend and Replace (Llama's
// SentencePiece), Precompiled and Strip (T5, mBART). Each makes valid UTF-8 of valid UTF-8.
using TextNormalizer = std::vector<std::function<std::string(const std::string&)>>;

std::string normalize(const TextNormalizer& normalizer, std::string_view text);

// Returns the text in canonical composition by the Unicode version of `tokenizers`. Characters of later versions do not
// change, and characters beside them do not combine with them.
std::string nfc(std::string_view text);

// Precompiled: the rules of a SentencePiece model, a double array of texts and what replaces them. They apply to whole
// grapheme clusters of less than 6 bytes, else to characters, by the shortest rule that the text begins with, as in
// `tokenizers`. Errors: UserError at `where` for bytes that are no such rules.
std::function<std::string(const std::string&)> precompiled(const std::string& bytes, const std::string& where);
// Returns what the place of a unit of such an array (Darts') is combined with, by XOR, to find those that follow it.
inline size_t double_array_offset(uint32_t unit) {
  return size_t{unit >> 10} << ((unit & 0x200) >> 6);
}

// Return the letters (\p{L}) and numbers (\p{N}) of Unicode 16, equal to Oniguruma 6.9.10, the engine of Hugging Face
// `tokenizers`: ids must not depend on the Unicode version of the machine's libraries.
std::span<const CodePointRange> letter_ranges();
std::span<const CodePointRange> number_ranges();

// Returns whether a character is part of words, like \w of the `regex` crate: alphabetic, mark, decimal digit,
// connector or joiner. Added tokens with the flag `single_word` may not touch such a character.
bool is_word_character(char32_t c);

// Bytes [begin,end) of a text.
struct TextMatch {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TextMatch&) const = default;
};

// The expression of Radford et al. 2019 (GPT-2, GPT-NeoX) in tokenizer.json.
extern const std::string_view kGpt2Pattern;

// Returns the expression with \p{L}, \p{N}, \s, their negations and long names replaced by Unicode 16's
// ranges, so that these classes do not depend on the installed Oniguruma. Other classes (\w, \d, \p{Lu},
// \p{Han}, [[:alpha:]], ...) follow the installed version: Unicode 14 in Debian 12.
std::string expand_classes(std::string_view expression);

// Words as views of the text, or of `storage` if a step changed the text.
struct Words {
  std::vector<std::string_view> views;
  std::deque<std::string> storage;
};

// The treatment of the matches of a Split.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Finds all matches in valid UTF-8, from left to right, without overlap. Several threads may use one.
using SplitPattern = std::function<std::vector<TextMatch>(std::string_view text)>;

// Returns the pattern of a regular expression, matched by Oniguruma, the engine of `tokenizers`, with its syntax and
// its search rules. A match may be empty, except where another match ends. `where` names the place of the expression in
// messages. Errors: UserError for an expression that Oniguruma refuses, and if a search backtracks too often.
SplitPattern regex_pattern(std::string_view expression, const std::string& where);
// Returns the pattern of a literal text that is not empty.
SplitPattern literal_pattern(std::string literal);
// Returns the pattern of single digits and other numbers (the pre-tokenizer Digits).
SplitPattern digits_pattern();

// One step of a pre-tokenizer: replaces each word by its parts that are not empty. `at_start`: the first word begins
// the whole text.
using PreTokenizerStep = std::function<void(Words& words, bool at_start)>;

// Cuts at matches; with `invert`, at the parts between matches.
PreTokenizerStep make_split(SplitPattern pattern, SplitBehavior behavior, bool invert);

// Adds a space before each word that begins with none.
void add_prefix_space(Words& words, bool at_start);

// Metaspace: replaces blanks by `replacement` and adds one before words that do not begin with it: before no word,
// before the text's first word or before all words. With `split`, cuts words before each replacement.
enum class PrependScheme { kNever, kFirst, kAlways };
PreTokenizerStep make_metaspace(std::string replacement, PrependScheme scheme, bool split);

// Pre-tokenizers of Hugging Face `tokenizers` cut a text into words; pieces never cross words. Supported are
// ByteLevel's regular expression (GPT-2, GPT-NeoX), Split (BLOOM, Llama 3), Digits, WhitespaceSplit (T5), Metaspace
// (Llama's SentencePiece in tokenizer.json), and sequences of these.
using PreTokenizer = std::vector<PreTokenizerStep>;

// Returns the words of a text (valid UTF-8), in order. The views live as long as the result and the text.
Words split_words(const PreTokenizer& pre_tokenizer, std::string_view text, bool at_start);

}  // namespace draftsmith::data
