// Regular expressions have the meaning that Hugging Face `tokenizers` gives them: expected cuts are those of its Split.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "data/tokenizers/pre_tokenizer.h"
#include "tests/support/errors.h"

namespace draftsmith::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns the matches and what lies between them.
std::vector<std::string> cut_by(std::string_view expression, std::string_view text) {
  std::vector<std::string> parts;
  size_t gap = 0;
  const auto add = [&](size_t begin, size_t end) {
    if (begin < end) parts.emplace_back(text.substr(begin, end - begin));
  };
  for (const TextMatch match : TextPattern(expression, "test").matches(text)) {
    add(gap, match.begin);
    add(match.begin, match.end);
    gap = match.end;
  }
  add(gap, text.size());
  return parts;
}

TEST(TextPattern, AlternativesGroupsAndCounts) {
  EXPECT_THAT(cut_by("ab|cd", "xabcdy"), ElementsAre("x", "ab", "cd", "y"));
  EXPECT_THAT(cut_by("(?:ab)+", "ababxab"), ElementsAre("abab", "x", "ab"));
  EXPECT_THAT(cut_by("(?:ab|c){2,3}", "abcabc"), ElementsAre("abcab", "c"));
  EXPECT_THAT(cut_by("a{2}", "aaaaa"), ElementsAre("aa", "aa", "a"));
  EXPECT_THAT(cut_by("a{2,}b", "aaab"), ElementsAre("aaab"));
  EXPECT_THAT(cut_by("(a|ab)(c|bcd)x?", "abcd"), ElementsAre("abcd")) << "goes back to other alternatives";
  EXPECT_THAT(cut_by("(a)\\1", "aab"), ElementsAre("aa", "b"));
  EXPECT_THAT(cut_by("(?>a|ab)c", "abcac"), ElementsAre("abc", "ac")) << "an atomic group keeps its alternative";
}

TEST(TextPattern, LazyAndPossessiveRepetition) {
  EXPECT_THAT(cut_by("<.+?>", "<a><b>c"), ElementsAre("<a>", "<b>", "c"));
  EXPECT_THAT(cut_by("a{1,2}?a", "aaaa"), ElementsAre("aa", "aa"));
  EXPECT_THAT(cut_by("a++b", "aab"), ElementsAre("aab"));
  EXPECT_THAT(cut_by("a++ab|b", "aaab"), ElementsAre("aaa", "b")) << "gives nothing back";
}

TEST(TextPattern, LooksAround) {
  EXPECT_THAT(cut_by("a+(?=b)", "aab aac"), ElementsAre("aa", "b aac"));
  EXPECT_THAT(cut_by("a(?!b)", "abac"), ElementsAre("ab", "a", "c"));
  EXPECT_THAT(cut_by("(?<=a)b", "abb"), ElementsAre("a", "b", "b"));
  EXPECT_THAT(cut_by("(?<!a)b", "abb"), ElementsAre("ab", "b"));
  EXPECT_THAT(cut_by("\\bword", "word sword"), ElementsAre("word", " sword"));
  EXPECT_THAT(cut_by("\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567"), ElementsAre("1", "234", "567"));
}

TEST(TextPattern, EmptyMatchesCut) {
  EXPECT_THAT(cut_by("a*", "bab"), ElementsAre("b", "a", "b"));
  EXPECT_THAT(cut_by("a*", "bb"), ElementsAre("b", "b"));
  EXPECT_THAT(cut_by("(?=(\\d{3})+(?!\\d))", "a1234567"), ElementsAre("a1", "234", "567"));
  EXPECT_THAT(cut_by("(?<=[a-z])(?=[A-Z])", "camelCaseText"), ElementsAre("camel", "Case", "Text"));
  EXPECT_THAT(cut_by("(?=日)", "é日日"), ElementsAre("é", "日", "日")) << "goes on behind a whole character";
  EXPECT_THAT(TextPattern("a|(?=c)", "test").matches("xac"), ElementsAre(TextMatch{1, 2}))
      << "no empty match where another ends";
}

TEST(TextPattern, Classes) {
  EXPECT_THAT(cut_by("[a-c\\]\\-]+", "xab]-cx"), ElementsAre("x", "ab]-c", "x"));
  EXPECT_THAT(cut_by("[^\\p{L}\\s]+", "é12 日"), ElementsAre("é", "12", " 日"));
  EXPECT_THAT(cut_by("[a[bc]]+", "xabcx"), ElementsAre("x", "abc", "x"));
  EXPECT_THAT(cut_by("[^a[bc]]+", "xabcx"), ElementsAre("x", "abc", "x"));
  EXPECT_THAT(cut_by("[a-z&&[^aeiou]]+", "banana"), ElementsAre("b", "a", "n", "a", "n", "a"));
  EXPECT_THAT(cut_by("[[:alpha:]]+", "ab1"), ElementsAre("ab", "1"));
  EXPECT_THAT(cut_by("\\p{Han}+", "日本語kana"), ElementsAre("日本語", "kana"));
  EXPECT_THAT(cut_by("\\P{N}+", "ab1²c"), ElementsAre("ab", "1²", "c"));
  EXPECT_THAT(cut_by("[\\p{^L}]+", "ab12"), ElementsAre("ab", "12"));
  EXPECT_THAT(cut_by("[\\P{L}]+|\\S", "ab12"), ElementsAre("a", "b", "12"));
  EXPECT_THAT(cut_by("\\S+", "a\u2003b"), ElementsAre("a", "\u2003", "b"));
  EXPECT_THAT(cut_by("[]\\s]+", "a] ]b"), ElementsAre("a", "] ]", "b"));
}

TEST(TextPattern, CaseIsIgnoredWithUnicodesFoldings) {
  EXPECT_THAT(cut_by("(?i:'s)|x", "'S'ſ'sX"), ElementsAre("'S", "'ſ", "'s", "X"));
  EXPECT_THAT(cut_by("(?i:k)", "kK\u212A"), ElementsAre("k", "K", "\u212A"));
  EXPECT_THAT(cut_by("(?i:é)", "Éé"), ElementsAre("É", "é"));
  EXPECT_THAT(cut_by("(?i:[a-c]+)x", "aBCx"), ElementsAre("aBCx"));
  // U+0345 is no letter, but a letter is its other case: only classes in brackets take it.
  EXPECT_TRUE(TextPattern("(?i:\\p{L})", "test").matches("\u0345").empty());
  EXPECT_EQ(TextPattern("(?i:[\\p{L}])", "test").matches("\u0345").size(), 1U);
}

TEST(TextPattern, LettersNumbersAndSpacesAreUnicode16s) {
  const CharacterClasses& classes = CharacterClasses::table();
  std::string text;
  std::vector<TextMatch> letters;
  std::vector<TextMatch> others;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    const size_t begin = text.size();
    append_utf8(c, text);
    if (classes.of(c) == kLetter) letters.push_back({begin, text.size()});
    if (classes.of(c) == 0) others.push_back({begin, text.size()});
  }
  EXPECT_TRUE(TextPattern("\\p{L}", "test").matches(text) == letters);
  EXPECT_TRUE(TextPattern("[^\\p{Letter}\\p{Number}\\s]", "test").matches(text) == others);
  EXPECT_EQ(classes.of(0x105C0), kLetter) << "a letter since Unicode 16 (Todhri)";
}

TEST(TextPattern, OnlyEscapedClassesAreExpanded) {
  EXPECT_EQ(expand_classes("\\\\p{L}\\p{Lu}[\\]\\d]\\w"), "\\\\p{L}\\p{Lu}[\\]\\d]\\w");
  EXPECT_THAT(expand_classes("\\p{N}"), testing::StartsWith("(?-i:[\\x{30}-\\x{39}\\x{B2}-"));
  EXPECT_THAT(expand_classes("[^\\P{N}]"), testing::StartsWith("[^[^\\x{30}-\\x{39}"));
  EXPECT_THAT(expand_classes("[[a]\\S]\\s"), testing::StartsWith("[[a][^\\x{9}-\\x{D}"));
}

TEST(TextPattern, MalformedExpressionsAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"(a", "unmatched parenthesis"},
      {"a)", "unmatched close parenthesis"},
      {"[a", "char-class"},
      {"[]", "empty char-class"},
      {"[b-a]", "empty range"},
      {"\\", "end pattern at escape"},
      {"*a", "target of repeat operator"},
      {"a{100001}", "too big number"},
      {"\\p{Hann}", "Hann"},
      {"(?z:a)", "group"},
      {std::string(10'000, '(') + "a" + std::string(10'000, ')'), "parse depth"},
  };
  for (const auto& [expression, part] : cases) {
    const std::string message = error_of([&] { TextPattern(expression, "tokenizer.json: pre_tokenizer"); });
    EXPECT_THAT(message, HasSubstr(part)) << expression;
    EXPECT_THAT(message, HasSubstr("tokenizer.json: pre_tokenizer")) << expression;
    EXPECT_THAT(message, HasSubstr("Oniguruma's syntax")) << expression;
  }
}

TEST(TextPattern, ExpressionsThatTakeForeverAreAnError) {
  const TextPattern pattern("(?:a|aa)+(?:b|c)", "slow.json");
  const std::string message = error_of([&] { pattern.matches(std::string(200, 'a') + "d"); });
  EXPECT_THAT(message, HasSubstr("slow.json"));
  EXPECT_THAT(message, HasSubstr("retry-limit"));
}

TEST(TextPattern, LongTextsTakeNoRecursion) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "ab";
  EXPECT_THAT(TextPattern("(?:ab)+c|(?:ab)+d|ab", "test").matches(text.substr(0, 2000)).size(), 1000U);
  EXPECT_THAT(TextPattern("(?:ab)+(?:c|$)", "test").matches(text), ElementsAre(TextMatch{0, 200'000}));
}

TEST(TextPattern, ThreadsShareOne) {
  const TextPattern pattern("(\\p{L}+)(?=\\s)|\\d", "test");
  const std::string text = "ein Text 12 für alle";
  const std::vector<TextMatch> wanted = pattern.matches(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int round = 0; round < 2000; ++round) count += pattern.matches(text) != wanted;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

}  // namespace
}  // namespace draftsmith::data
