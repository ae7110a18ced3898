// Pre-tokenizers of Hugging Face `tokenizers`, which cut a text into words; pieces never cross words. Supported are
// ByteLevel's regular expression (GPT-2, GPT-NeoX), Split (BLOOM, Llama 3), Digits, Metaspace (Llama's SentencePiece in
// tokenizer.json), and sequences of these.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/known_patterns.h"
#include "data/tokenizers/text_pattern.h"

namespace draftsmith::data {

// Words as views of the text, or of `storage` if a step changed the text.
struct Words {
  std::vector<std::string_view> views;
  std::deque<std::string> storage;
};

// The treatment of the matches of a Split.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// A part of a text, and whether a pattern matched it. Only matched parts may be empty.
struct TextPart {
  size_t begin;
  size_t end;
  bool matched;
  bool operator==(const TextPart&) const = default;
};

// Finds the matches of a regular expression (by a scanner if one is known, else by Oniguruma), of a literal text or of
// digits.
class SplitPattern {
 public:
  // Errors: UserError for an expression that TextPattern refuses.
  static SplitPattern regex(std::string_view expression, const std::string& where);
  // Uses Oniguruma even if a scanner is known, for comparisons.
  static SplitPattern general_regex(std::string_view expression, const std::string& where);
  // Matches a text that is not empty.
  static SplitPattern literal(std::string text);
  // Matches single digits and other numbers, as the pre-tokenizer Digits does.
  static SplitPattern digits();

  // Replaces `parts` by all parts of a text (valid UTF-8), in order: matches and what lies between them.
  void cut(std::string_view text, std::vector<TextPart>& parts) const;

 private:
  // End of the match that begins at byte `at`, or `at`; not for general expressions.
  size_t match(std::string_view text, size_t at) const;

  PatternScanner scanner_ = nullptr;
  std::shared_ptr<const TextPattern> pattern_;
  std::string literal_;
};

// One step of a pre-tokenizer.
class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  // Replaces each word by its parts that are not empty. `at_start`: the first word begins the whole text.
  virtual void apply(Words& words, bool at_start) const = 0;
};

// Cuts at matches; with `invert`, at the parts between matches.
std::unique_ptr<PreTokenizerStep> make_split(SplitPattern pattern, SplitBehavior behavior, bool invert);

// Adds a space before each word that begins with none.
std::unique_ptr<PreTokenizerStep> make_prefix_space();

// Metaspace: replaces blanks by `replacement` and adds one before words that do not begin with it: before no word,
// before the text's first word or before all words. With `split`, cuts words before each replacement.
enum class PrependScheme { kNever, kFirst, kAlways };
std::unique_ptr<PreTokenizerStep> make_metaspace(std::string replacement, PrependScheme scheme, bool split);

class PreTokenizer {
 public:
  void add(std::unique_ptr<PreTokenizerStep> step) { steps_.push_back(std::move(step)); }
  // Replaces `words` by the words of a text (valid UTF-8) in order. The views live as long as `words` and the text.
  void split(std::string_view text, bool at_start, Words& words) const;

 private:
  std::vector<std::unique_ptr<PreTokenizerStep>> steps_;
};

}  // namespace draftsmith::data
