#include "metrics/unicode_classes.h"

#include <algorithm>
#include <array>

#include <unicode/uchar.h>

#include "base/utf8.h"

namespace draftsmith::metrics {
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
