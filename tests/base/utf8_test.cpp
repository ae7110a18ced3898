// UTF-8: validity, repair, ends of streams, white space and columns.
#include "base/utf8.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace draftsmith {
namespace {

TEST(Utf8, TheFirstBadByteIsNamed) {
  const std::vector<std::pair<std::string, size_t>> cases = {
      {"ab\xff", 2},            // no such byte
      {"a\x80", 1},             // a continuation without a beginning
      {"ok\xe6\x97", 2},        // cut off
      {"\xe0\x80\xaf", 0},      // overlong
      {"x\xed\xa0\x80", 1},     // a surrogate
      {"\xf4\x90\x80\x80", 0},  // beyond U+10FFFF
  };
  for (const auto& [text, offset] : cases) EXPECT_EQ(invalid_utf8_offset(text), offset) << offset;
}

TEST(Utf8, WidthsAreThoseOfATerminal) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("gru\xcc\x88n"), 4u);  // u with a combining diaeresis
  EXPECT_EQ(display_width("日本"), 4u);
  EXPECT_EQ(display_width("…"), 1u);
  EXPECT_EQ(display_width("\xff\xfe"), 2u);
}

TEST(Utf8, ReplacementTakesMaximalIllFormedParts) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("a\xE2\x82z"), "a" + mark + "z");                 // truncated sequence: one mark
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), mark + mark);                        // overlong
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), mark + mark + mark);             // surrogate
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), mark + mark + mark + mark);  // above U+10FFFF
  EXPECT_EQ(replace_invalid_utf8("ä€𝄞"), "ä€𝄞");
}

TEST(Utf8, CharactersAreDecodedAndEncoded) {
  std::string all;
  std::vector<char32_t> wanted;
  for (char32_t c = 0; c < 0x110000; c += 0x3F) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    wanted.push_back(c);
    append_utf8(c, all);
  }
  std::vector<char32_t> found;
  for (size_t at = 0; at < all.size();) {
    const CodePoint c = code_point_at(all, at);
    ASSERT_TRUE(c.valid);
    at += c.length;
    ASSERT_EQ(previous_character(all, at), at - c.length);
    found.push_back(c.value);
  }
  EXPECT_EQ(found, wanted);
}

TEST(Utf8, OnlyBeginningsOfCharactersAreIncomplete) {
  const std::vector<std::pair<std::string, size_t>> cases = {{"", 0},         {"\xc3\xbc", 0},     {"a\xc3", 1},
                                                             {"\xe6\x97", 2}, {"\xf0\x9f\x98", 3}, {"\xe0\x80", 0},
                                                             {"\x80", 0},     {"\x80\x80", 0}};
  for (const auto& [text, count] : cases) EXPECT_EQ(incomplete_suffix(text), count) << testing::PrintToString(text);
}

TEST(Utf8, WhiteSpaceIsUnicodes) {
  EXPECT_TRUE(is_blank(""));
  EXPECT_TRUE(is_blank(" \t\r\n\u0085\u00a0\u1680\u2009\u2028\u202f\u205f\u3000"));
  for (const char* text : {"a", " a ", "\u200b", "\x1c", "\u180e", "\ufeff", "\xff"})
    EXPECT_FALSE(is_blank(text)) << text;
}

TEST(Printable, EscapesWhatATerminalWouldActOnAndCutsLongText) {
  EXPECT_EQ(printable("plain ~text"), "plain ~text");
  EXPECT_EQ(printable("a\x1b[31m\n\x7f\xc3"), "a\\x1b[31m\\x0a\\x7f\\xc3");
  EXPECT_EQ(printable(std::string(120, 'x')), std::string(120, 'x'));
  EXPECT_EQ(printable(std::string(121, 'x')), std::string(120, 'x') + "...");
}

}  // namespace
}  // namespace draftsmith
