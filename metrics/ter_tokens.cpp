#include "metrics/ter_tokens.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "metrics/mteval_rules.h"
#include "metrics/python_text.h"
#include "metrics/text.h"

namespace draftsmith::metrics {
namespace {

template <typename Ranges>
bool is_among(const Ranges& ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(), [c](auto range) { return range.first <= c && c <= range.last; });
}

bool is_east_asian_punctuation(char32_t c) {
  static constexpr std::array<CodePointRange, 11> kRanges{{{0x3001, 0x3002},
                                                           {0x3008, 0x3011},
                                                           {0x3014, 0x301F},
                                                           {0xFF61, 0xFF65},
                                                           {0x30FB, 0x30FB},
                                                           {0xFF0E, 0xFF0E},
                                                           {0xFF0C, 0xFF0C},
                                                           {0xFF1F, 0xFF1F},
                                                           {0xFF1A, 0xFF1B},
                                                           {0xFF01, 0xFF02},
                                                           {0xFF08, 0xFF09}}};
  return is_among(kRanges, c);
}

// Ideographs, strokes, radicals, compatibility forms and enclosed characters. Tercom also means to split kana from
// other scripts; sacreBLEU's expressions for that demand kana where the text has a blank, and so never match.
bool is_ideograph(char32_t c) {
  static constexpr std::array<CodePointRange, 7> kRanges{{{0x4E00, 0x9FFF},
                                                          {0x3200, 0x3F22},
                                                          {0x3400, 0x4DBF},
                                                          {0x31C0, 0x31EF},
                                                          {0x2E80, 0x2EFF},
                                                          {0xF900, 0xFAFF},
                                                          {0xFE30, 0xFE4F}}};
  return is_among(kRanges, c);
}

std::string isolate_east_asian(const std::string& text) {
  std::string result;
  for (const char32_t c : code_points(text)) {
    const bool alone = is_ideograph(c) || is_east_asian_punctuation(c);
    if (alone) result.push_back(' ');
    append_utf8(c, result);
    if (alone) result.push_back(' ');
  }
  return result;
}

std::string normalized(std::string text) {
  replace_all(text, "\n-", "");
  replace_all(text, "\n", " ");
  unescape_entities(text);
  text = isolate_punctuation(" " + text + " ");
  replace_all(text, "'s ", " 's ");
  return isolate_points_and_dashes(std::move(text));
}

std::string without_punctuation(const std::string& text, bool east_asian) {
  static constexpr std::string_view kPunctuation = ".,?:;!\"()";
  std::string result;
  for (const char32_t c : code_points(text)) {
    const bool western = c < 0x80 && kPunctuation.find(static_cast<char>(c)) != std::string_view::npos;
    if (!western && !(east_asian && is_east_asian_punctuation(c))) append_utf8(c, result);
  }
  return result;
}

}  // namespace

Fields<TerOptions> TerOptions::fields() {
  return Fields<TerOptions>("TER options")
      .add("ter_normalized", &TerOptions::normalized, "Split off punctuation and replace XML entities before TER.")
      .add("ter_no_punct", &TerOptions::no_punct, "Remove punctuation before TER.")
      .add("ter_asian_support", &TerOptions::asian_support,
           "With ter_normalized, split East Asian text into characters; with ter_no_punct, remove its punctuation.")
      .add("ter_case_sensitive", &TerOptions::case_sensitive, "Do not lower the case of texts before TER.");
}

std::vector<std::string> ter_tokens(std::string_view segment, const TerOptions& options) {
  std::string text(right_stripped(segment));
  if (text.empty()) return {};
  if (!options.case_sensitive) text = lower_case(text);
  if (options.normalized) {
    text = normalized(std::move(text));
    if (options.asian_support) text = isolate_east_asian(text);
  }
  if (options.no_punct) text = without_punctuation(text, options.asian_support);
  return words_of(text);
}

}  // namespace draftsmith::metrics
