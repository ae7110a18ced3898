#include "metrics/text.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include <unicode/uchar.h>

#include "base/utf8.h"

namespace draftsmith::metrics {
namespace {

// Returns the character at byte `at`; an ill-formed byte is a character of its own.
CodePoint character_at(std::string_view text, size_t at) {
  CodePoint c = code_point_at(text, at);
  if (!c.valid) c.length = 1;
  return c;
}

}  // namespace

std::vector<char32_t> code_points(std::string_view text) {
  std::vector<char32_t> result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint next = character_at(text, at);
    result.push_back(next.value);
    at += next.length;
  }
  return result;
}

bool is_space(char32_t c) {
  return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint next = character_at(text, at);
    if (is_space(next.value)) {
      if (at > begin) words.push_back(text.substr(begin, at - begin));
      begin = at + next.length;
    }
    at += next.length;
  }
  if (text.size() > begin) words.push_back(text.substr(begin));
  return words;
}

References references_from_streams(const std::vector<std::vector<std::string>>& streams) {
  if (streams.empty()) throw std::logic_error("references_from_streams: no stream");
  References references(streams.front().size());
  for (const auto& stream : streams) {
    if (stream.size() != references.size()) throw std::logic_error("references_from_streams: unequal streams");
    for (size_t line = 0; line < stream.size(); ++line) references[line].push_back(stream[line]);
  }
  return references;
}

std::string_view right_stripped(std::string_view text) {
  const auto words = split_words(text);
  if (words.empty()) return {};
  return text.substr(0, static_cast<size_t>(words.back().data() + words.back().size() - text.data()));
}

std::string_view stripped(std::string_view text) {
  const std::string_view right = right_stripped(text);
  const auto words = split_words(right);
  return words.empty() ? right : right.substr(static_cast<size_t>(words.front().data() - right.data()));
}

std::vector<std::string> words_of(std::string_view text) {
  const auto words = split_words(text);
  return {words.begin(), words.end()};
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

namespace {

// Characters that Unicode 15.1, 16 and 17 added.
constexpr std::array<CodePointRange, 10> kPunctuation{{{0x1B4E, 0x1B4F},
                                                       {0x1B7F, 0x1B7F},
                                                       {0x2E60, 0x2E63},
                                                       {0x10D6E, 0x10D6E},
                                                       {0x10ED0, 0x10ED0},
                                                       {0x113D4, 0x113D5},
                                                       {0x113D7, 0x113D8},
                                                       {0x11BE1, 0x11BE1},
                                                       {0x16D6D, 0x16D6F},
                                                       {0x1E5FF, 0x1E5FF}}};
constexpr std::array<CodePointRange, 44> kSymbols{
    {{0x20C1, 0x20C4},   {0x2427, 0x2429},   {0x2B96, 0x2B96},   {0x2FFC, 0x2FFF},   {0x31E4, 0x31E5},
     {0x31EF, 0x31EF},   {0xFBC3, 0xFBD2},   {0xFD90, 0xFD91},   {0xFDC8, 0xFDCE},   {0x10D8E, 0x10D8F},
     {0x10EC9, 0x10ECA}, {0x10ED1, 0x10ED8}, {0x1CC00, 0x1CCEF}, {0x1CCFA, 0x1CCFC}, {0x1CD00, 0x1CEB3},
     {0x1CEBA, 0x1CED0}, {0x1CED2, 0x1CED4}, {0x1CEDD, 0x1CEFD}, {0x1D1EB, 0x1D1FF}, {0x1D253, 0x1D25A},
     {0x1D25D, 0x1D25E}, {0x1D260, 0x1D27F}, {0x1DB00, 0x1DB1C}, {0x1F1AE, 0x1F1AE}, {0x1F6D8, 0x1F6D9},
     {0x1F777, 0x1F77A}, {0x1F7DA, 0x1F7DB}, {0x1F7F1, 0x1F7FF}, {0x1F8B2, 0x1F8BB}, {0x1F8C0, 0x1F8C1},
     {0x1F8D0, 0x1F8D8}, {0x1FA54, 0x1FA57}, {0x1FA89, 0x1FA8F}, {0x1FABE, 0x1FABE}, {0x1FAC6, 0x1FAC6},
     {0x1FAC8, 0x1FAC8}, {0x1FACC, 0x1FACD}, {0x1FADC, 0x1FADD}, {0x1FADF, 0x1FADF}, {0x1FAE9, 0x1FAEB},
     {0x1FAEF, 0x1FAEF}, {0x1FAF9, 0x1FAFA}, {0x1FBCB, 0x1FBEF}, {0x1FBFA, 0x1FBFA}}};
constexpr std::array<CodePointRange, 12> kNumbers{{{0x10D40, 0x10D49},
                                                   {0x116D0, 0x116E3},
                                                   {0x11BF0, 0x11BF9},
                                                   {0x11DE0, 0x11DE9},
                                                   {0x1246F, 0x1246F},
                                                   {0x12475, 0x1247F},
                                                   {0x12550, 0x12686},
                                                   {0x16130, 0x16139},
                                                   {0x16D70, 0x16D79},
                                                   {0x16FF4, 0x16FF6},
                                                   {0x1CCF0, 0x1CCF9},
                                                   {0x1E5F1, 0x1E5FA}}};

template <typename Ranges>
bool is_in(const Ranges& ranges, char32_t c) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), c, [](char32_t at, auto range) { return at < range.first; });
  return after != ranges.begin() && c <= std::prev(after)->last;
}

bool has_category(char32_t c, uint32_t mask) {
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & mask) != 0;
}

}  // namespace

bool is_punctuation(char32_t c) {
  return has_category(c, U_GC_P_MASK) || is_in(kPunctuation, c);
}

bool is_symbol(char32_t c) {
  return has_category(c, U_GC_S_MASK) || is_in(kSymbols, c);
}

bool is_number(char32_t c) {
  return has_category(c, U_GC_N_MASK) || is_in(kNumbers, c);
}

}  // namespace draftsmith::metrics
