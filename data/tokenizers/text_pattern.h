// Regular expressions of tokenizer.json (the pre-tokenizer Split), matched by Oniguruma, the engine of Hugging Face
// `tokenizers`, with the syntax and the search rules that `tokenizers` uses.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct re_pattern_buffer;  // of <oniguruma.h>

namespace draftsmith::data {

// Bytes [begin,end) of a text.
struct TextMatch {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TextMatch&) const = default;
};

// Returns the expression with \p{L}, \p{N}, \s, their negations and long names replaced by Unicode 16's ranges
// (character_classes.h), so that these classes do not depend on the installed Oniguruma. Other classes (\w, \d, \p{Lu},
// \p{Han}, [[:alpha:]], ...) follow the installed version: Unicode 14 in Debian 12.
std::string expand_classes(std::string_view expression);

// A compiled expression. Several threads may use one.
class TextPattern {
 public:
  // `where` names the place of the expression in messages. Errors: UserError for an expression that Oniguruma refuses.
  TextPattern(std::string_view expression, std::string where);

  // Returns all matches in valid UTF-8, from left to right, without overlap. A match may be empty, except where
  // another match ends, as in `tokenizers`. Errors: UserError if a search backtracks too
  // often.
  std::vector<TextMatch> matches(std::string_view text) const;

 private:
  std::string expression_;
  std::string where_;
  std::shared_ptr<re_pattern_buffer> compiled_;
};

}  // namespace draftsmith::data
