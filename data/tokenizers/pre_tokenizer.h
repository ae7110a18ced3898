// Pre-tokenizers of Hugging Face `tokenizers`: a text is cut into words, within which pieces are merged. ByteLevel's
// regular expression (GPT-2, GPT-NeoX), Split (BLOOM, Llama 3), Digits, Metaspace (Llama's SentencePiece in
// tokenizer.json), and sequences of them.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/known_patterns.h"
#include "data/tokenizers/text_pattern.h"

namespace draftsmith::data {

// Words, as views of the text or of `storage` (where a step changed the text).
struct Words {
  std::vector<std::string_view> views;
  std::deque<std::string> storage;
};

// What becomes of the matches of a Split.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Finds matches of a regular expression: a scanner where one is known, else the general engine.
class SplitPattern {
 public:
  // Errors: UserError for an expression that TextPattern cannot handle.
  static SplitPattern regex(std::string_view expression, const std::string& where);
  // The general engine, also where a scanner is known (for comparisons).
  static SplitPattern general_regex(std::string_view expression, const std::string& where);
  // A literal text; must not be empty.
  static SplitPattern literal(std::string text);
  // Single digits and other numbers, as the Digits pre-tokenizer takes them.
  static SplitPattern digits();

  // End of the match that begins at `at`, or `at`.
  size_t match(std::string_view text, size_t at) const;

 private:
  PatternScanner scanner_ = nullptr;
  std::shared_ptr<const TextPattern> pattern_;
  std::string literal_;
};

// One step of a pre-tokenizer.
class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  // Replaces each word by its parts; empty ones are dropped. `at_start`: the first word begins the whole text.
  virtual void apply(Words& words, bool at_start) const = 0;
};

// Cuts at matches; `invert` takes what lies between matches for matches.
std::unique_ptr<PreTokenizerStep> make_split(SplitPattern pattern, SplitBehavior behavior, bool invert);

// Puts a space before each word that begins with none.
std::unique_ptr<PreTokenizerStep> make_prefix_space();

// Metaspace: blanks become `replacement`, which is also put before words that lack it (never, before the text's first
// word, or before all); with `split`, words are cut before each replacement.
enum class PrependScheme { kNever, kFirst, kAlways };
std::unique_ptr<PreTokenizerStep> make_metaspace(std::string replacement, PrependScheme scheme, bool split);

class PreTokenizer {
 public:
  void add(std::unique_ptr<PreTokenizerStep> step) { steps_.push_back(std::move(step)); }
  // Words of a text (valid UTF-8) in order; `words` is cleared first and its views live as long as it and the text.
  void split(std::string_view text, bool at_start, Words& words) const;

 private:
  std::vector<std::unique_ptr<PreTokenizerStep>> steps_;
};

}  // namespace draftsmith::data
