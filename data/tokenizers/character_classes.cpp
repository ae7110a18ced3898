#include "data/tokenizers/character_classes.h"

#include <algorithm>

#include <unicode/uchar.h>

namespace draftsmith::data {

namespace {

constexpr char32_t kCodePoints = 0x110000;

}  // namespace

CharacterClasses::CharacterClasses() {
  std::vector<uint8_t> all(kCodePoints, 0);
  const auto mark = [&](std::span<const CodePointRange> ranges, CharacterClass which) {
    for (const CodePointRange& range : ranges) std::fill(&all[range.first], &all[range.last] + 1, which);
  };
  mark(letter_ranges(), kLetter);
  mark(number_ranges(), kNumber);
  mark(kWhiteSpace, kSpace);
  for (size_t begin = 0; begin < all.size(); begin += 256) {
    std::array<uint8_t, 256> block{};
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(begin), block.size(), block.begin());
    const auto known = std::find(blocks_.begin(), blocks_.end(), block);
    pages_.push_back(static_cast<uint16_t>(known - blocks_.begin()));
    if (known == blocks_.end()) blocks_.push_back(block);
  }
}

const CharacterClasses& CharacterClasses::table() {
  static const CharacterClasses kTable;
  return kTable;
}

bool is_word_character(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  constexpr uint32_t kMarks = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return u_isUAlphabetic(point) || (U_MASK(u_charType(point)) & kMarks) != 0 ||
         u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL);
}

}  // namespace draftsmith::data
