#include "metrics/bleu_tokenizers.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/registry.h"
#include "base/utf8.h"
#include "metrics/text.h"

namespace draftsmith::metrics {

// ---- Rules of mteval
// Rules of NIST's mteval script for Western punctuation, which the tokenizers 13a and zh of BLEU share. They act on
// ASCII only, so bytes suffice.

// Replaces the entities &quot; &amp; &lt; &gt;, in this order.
void unescape_entities(std::string& text);

// Returns the text with blanks around blanks and each ASCII punctuation mark but apostrophe, comma, hyphen and full
// stop.
std::string isolate_punctuation(const std::string& text);

// Returns the text with commas and full stops set apart unless digits are on both sides, and hyphens behind digits. At
// the text's ends, the rule for the missing side does not apply.
std::string isolate_points_and_dashes(std::string text);

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_point(char c) {
  return c == '.' || c == ',';
}

bool stands_alone(char c) {
  const bool punctuation =
      (c >= ' ' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  return punctuation && c != '\'' && c != '-' && !is_point(c);
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

void write_behind(char first, char second, std::string& out) {
  out.append({first, ' ', second, ' '});
}
void write_before(char first, char second, std::string& out) {
  out.append({' ', first, ' ', second});
}

}  // namespace

void unescape_entities(std::string& text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kEntities{
      {{"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}}};
  for (const auto& [entity, character] : kEntities) replace_all(text, entity, character);
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

std::string isolate_points_and_dashes(std::string text) {
  text = rewrite_pairs(
      text, [](char first, char second) { return !is_digit(first) && is_point(second); }, write_behind);
  text = rewrite_pairs(
      text, [](char first, char second) { return is_point(first) && !is_digit(second); }, write_before);
  return rewrite_pairs(
      text, [](char first, char second) { return is_digit(first) && second == '-'; }, write_behind);
}

// ---- Tokenizers of fixed rules
// As in sacreBLEU 2.6: none (white space), char, 13a (mteval-v13a), intl (mteval-v14 international) and zh.

std::unique_ptr<const BleuTokenizer> make_white_space_tokenizer();
std::unique_ptr<const BleuTokenizer> make_character_tokenizer();
std::unique_ptr<const BleuTokenizer> make_13a_tokenizer();
// Punctuation and symbols of all scripts are tokens; punctuation between two digits of any script is not split.
std::unique_ptr<const BleuTokenizer> make_international_tokenizer();
// Chinese characters and East Asian punctuation are tokens; 13a's rules split the rest.
std::unique_ptr<const BleuTokenizer> make_chinese_tokenizer();

namespace {

using Pieces = std::vector<std::string>;

// Tokenizer that is a function.
class RuleTokenizer : public BleuTokenizer {
 public:
  RuleTokenizer(std::string name, Pieces (*split)(std::string_view)) : name_(std::move(name)), split_(split) {}
  // sacreBLEU removes trailing white space before all else.
  Pieces tokens(std::string_view text) const override { return split_(right_stripped(text)); }
  std::string signature() const override { return name_; }

 private:
  std::string name_;
  Pieces (*split_)(std::string_view);
};

std::unique_ptr<const BleuTokenizer> rule(const char* name, Pieces (*split)(std::string_view)) {
  return std::make_unique<RuleTokenizer>(name, split);
}

Pieces characters_of(std::string_view text) {
  Pieces characters;
  for (const char32_t c : code_points(text)) {
    if (!is_space(c)) append_utf8(c, characters.emplace_back());
  }
  return characters;
}

Pieces split_13a(std::string_view segment) {
  std::string text(segment);
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  unescape_entities(text);
  return words_of(isolate_points_and_dashes(isolate_punctuation(" " + text + " ")));
}

// Puts blanks into text between pairs of characters, from left to right and without overlap: where
// `matches(first, second)`, before the first, between both and behind the second as `blanks` says.
struct Blanks {
  bool before;
  bool behind;
};
template <typename Matches>
std::u32string part_pairs(const std::u32string& text, Blanks blanks, Matches matches) {
  std::u32string result;
  for (size_t at = 0; at < text.size();) {
    if (at + 1 == text.size() || !matches(text[at], text[at + 1])) {
      result.push_back(text[at++]);
      continue;
    }
    if (blanks.before) result.push_back(U' ');
    result.append({text[at], U' ', text[at + 1]});
    if (blanks.behind) result.push_back(U' ');
    at += 2;
  }
  return result;
}

Pieces split_international(std::string_view segment) {
  const auto characters = code_points(segment);
  std::u32string text(characters.begin(), characters.end());
  text = part_pairs(text, {.before = false, .behind = true},
                    [](char32_t first, char32_t second) { return !is_number(first) && is_punctuation(second); });
  text = part_pairs(text, {.before = true, .behind = false},
                    [](char32_t first, char32_t second) { return is_punctuation(first) && !is_number(second); });
  std::string parted;
  for (const char32_t c : text) {
    const bool symbol = is_symbol(c);
    if (symbol) parted.push_back(' ');
    append_utf8(c, parted);
    if (symbol) parted.push_back(' ');
  }
  return words_of(parted);
}

// sacreBLEU's ranges. Its two ranges beyond U+FFFF are escapes of four digits and one character more, so that they
// compare as U+2001 to U+2A6D and U+2F81 to U+2FA1: general punctuation and symbols are split, extension B is not.
bool is_chinese(char32_t c) {
  static constexpr std::array<CodePointRange, 22> kRanges{
      {{0x3400, 0x4DB5}, {0x4E00, 0x9FA5}, {0x9FA6, 0x9FBB}, {0xF900, 0xFA2D}, {0xFA30, 0xFA6A}, {0xFA70, 0xFAD9},
       {0x2001, 0x2A6D}, {0x2F81, 0x2FA1}, {0xFF00, 0xFFEF}, {0x2E80, 0x2EFF}, {0x3000, 0x303F}, {0x31C0, 0x31EF},
       {0x2F00, 0x2FDF}, {0x2FF0, 0x2FFF}, {0x3100, 0x312F}, {0x31A0, 0x31BF}, {0xFE10, 0xFE1F}, {0xFE30, 0xFE4F},
       {0x2600, 0x26FF}, {0x2700, 0x27BF}, {0x3200, 0x32FF}, {0x3300, 0x33FF}}};
  return std::any_of(kRanges.begin(), kRanges.end(), [c](auto range) { return range.first <= c && c <= range.last; });
}

Pieces split_chinese(std::string_view segment) {
  std::string text;
  for (const char32_t c : code_points(stripped(segment))) {
    const bool chinese = is_chinese(c);
    if (chinese) text.push_back(' ');
    append_utf8(c, text);
    if (chinese) text.push_back(' ');
  }
  return words_of(isolate_points_and_dashes(isolate_punctuation(text)));
}

}  // namespace

std::unique_ptr<const BleuTokenizer> make_white_space_tokenizer() {
  return rule("none", words_of);
}

std::unique_ptr<const BleuTokenizer> make_character_tokenizer() {
  return rule("char", characters_of);
}

std::unique_ptr<const BleuTokenizer> make_13a_tokenizer() {
  return rule("13a", split_13a);
}

std::unique_ptr<const BleuTokenizer> make_international_tokenizer() {
  return rule("intl", split_international);
}

std::unique_ptr<const BleuTokenizer> make_chinese_tokenizer() {
  return rule("zh", split_chinese);
}

namespace {

struct Entry {
  std::string name;
  std::unique_ptr<const BleuTokenizer> (*make)();
};

const Registry<Entry>& tokenizers() {
  static const Registry<Entry> kTokenizers("BLEU tokenizer", {{"13a", make_13a_tokenizer},
                                                              {"none", make_white_space_tokenizer},
                                                              {"char", make_character_tokenizer},
                                                              {"intl", make_international_tokenizer},
                                                              {"zh", make_chinese_tokenizer}});
  return kTokenizers;
}

}  // namespace

std::vector<std::string> bleu_tokenizer_names() {
  return tokenizers().names();
}

std::unique_ptr<const BleuTokenizer> make_bleu_tokenizer(const std::string& name) {
  return tokenizers().at(name).make();
}

std::string language_of_references(const std::filesystem::path& file) {
  std::string ending = file.extension().string();
  if (ending.starts_with(".ref")) ending = file.stem().extension().string();
  const size_t hyphen = ending.rfind('-');
  return ending.empty() ? "" : ending.substr(hyphen == std::string::npos ? 1 : hyphen + 1);
}

std::string default_bleu_tokenizer(const std::string& language) {
  if (language == "zh") return "zh";
  return language == "ja" ? "char" : "13a";
}

}  // namespace draftsmith::metrics
