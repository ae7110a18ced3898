// BLEU's tokenizers. 13a repeats mteval-v13a's rules for Western scripts; they act on ASCII only, so bytes suffice.

#include <array>
#include <utility>

#include "base/utf8.h"
#include "metrics/bleu.h"

namespace draftsmith::metrics {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_point(char c) {
  return c == '.' || c == ',';
}

// Returns whether a character is ASCII punctuation that is always a token: all but apostrophe, comma, hyphen, full
// stop.
bool stands_alone(char c) {
  const bool punctuation =
      (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  return punctuation && c != '\'' && c != '-' && !is_point(c);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

std::string isolate_punctuation(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (stands_alone(c)) {
      result.append({' ', c, ' '});
    } else {
      result.push_back(c);
    }
  }
  return result;
}

// Rewrites pairs of characters from left to right, without overlap: `write` outputs both if `matches(first, second)`.
template <typename Matches, typename Write>
std::string rewrite_pairs(const std::string& text, Matches matches, Write write) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    if (at + 1 < text.size() && matches(text[at], text[at + 1])) {
      write(text[at], text[at + 1], result);
      at += 2;
    } else {
      result.push_back(text[at++]);
    }
  }
  return result;
}

std::string tokenize_13a(std::string text) {
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kEntities{
      {{"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}}};
  for (const auto& [entity, character] : kEntities) replace_all(text, entity, character);

  text = isolate_punctuation(" " + text + " ");
  text = rewrite_pairs(
      text, [](char first, char second) { return !is_digit(first) && is_point(second); },
      [](char first, char second, std::string& out) {
        out.append({first, ' ', second, ' '});
      });
  text = rewrite_pairs(
      text, [](char first, char second) { return is_point(first) && !is_digit(second); },
      [](char first, char second, std::string& out) {
        out.append({' ', first, ' ', second});
      });
  return rewrite_pairs(
      text, [](char first, char second) { return is_digit(first) && second == '-'; },
      [](char first, char second, std::string& out) {
        out.append({first, ' ', second, ' '});
      });
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (const auto word : split_words(text)) words.emplace_back(word);
  return words;
}

std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> characters;
  for (const char32_t c : code_points(text)) {
    if (!is_space(c)) append_utf8(c, characters.emplace_back());
  }
  return characters;
}

// Removes trailing white space like Python's rstrip(), which sacreBLEU applies before it tokenizes.
std::string_view without_trailing_space(std::string_view text) {
  const auto words = split_words(text);
  if (words.empty()) return {};
  return text.substr(0, static_cast<size_t>(words.back().data() + words.back().size() - text.data()));
}

}  // namespace

const NamedValues<BleuTokenizer>& bleu_tokenizers() {
  static const NamedValues<BleuTokenizer> kTokenizers(
      "BLEU tokenizer", {{"13a", BleuTokenizer::k13a}, {"none", BleuTokenizer::kNone}, {"char", BleuTokenizer::kChar}});
  return kTokenizers;
}

std::vector<std::string> bleu_tokens(std::string_view text, BleuTokenizer tokenizer) {
  switch (tokenizer) {
    case BleuTokenizer::k13a:
      return words_of(tokenize_13a(std::string(without_trailing_space(text))));
    case BleuTokenizer::kNone:
      return words_of(text);
    default:
      return characters_of(text);
  }
}

}  // namespace draftsmith::metrics
