#include "data/tokenizers/character_classes.h"

#include <algorithm>

#include <unicode/uchar.h>

namespace draftsmith::data {

namespace {

constexpr char32_t kCodePoints = 0x110000;
constexpr std::array<CharacterRange, 10> kSpaceRanges = {{{0x09, 0x0D},
                                                          {0x20, 0x20},
                                                          {0x85, 0x85},
                                                          {0xA0, 0xA0},
                                                          {0x1680, 0x1680},
                                                          {0x2000, 0x200A},
                                                          {0x2028, 0x2029},
                                                          {0x202F, 0x202F},
                                                          {0x205F, 0x205F},
                                                          {0x3000, 0x3000}}};

}  // namespace

CharacterClasses::CharacterClasses() {
  std::vector<uint8_t> all(kCodePoints, 0);
  const auto mark = [&](std::span<const CharacterRange> ranges, CharacterClass which) {
    for (const CharacterRange& range : ranges) std::fill(&all[range.first], &all[range.last] + 1, which);
  };
  mark(letter_ranges(), kLetter);
  mark(number_ranges(), kNumber);
  mark(kSpaceRanges, kSpace);
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

void append_utf8(char32_t c, std::string& text) {
  const auto add = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | c >> 6);
    add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12);
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | c >> 18);
    add(0x80 | (c >> 12 & 0x3F));
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  }
}

}  // namespace draftsmith::data
