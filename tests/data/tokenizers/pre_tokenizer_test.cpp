// Regular expressions of pre-tokenizers, their scanners, and what Split does with matches.
#include "data/tokenizers/pre_tokenizer.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/tokenizers/character_classes.h"
#include "data/tokenizers/text_normalizer.h"
#include "tests/data/test_files.h"

namespace draftsmith::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> cut(std::unique_ptr<PreTokenizerStep> step, std::string_view text) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(std::move(step));
  Words words;
  pre_tokenizer.split(text, true, words);
  return {words.views.begin(), words.views.end()};
}

std::vector<std::string> cut(std::string_view expression, std::string_view text,
                             SplitBehavior behavior = SplitBehavior::kIsolated, bool invert = false) {
  return cut(make_split(SplitPattern::general_regex(expression, "test"), behavior, invert), text);
}

// Text that visits every branch of the families' expressions: white space of all kinds, quotes, digits, letters of
// several scripts, marks, punctuation.
std::string fuzzed_text(std::mt19937& random) {
  const std::u32string usual =
      U" '\n\r\t.,!?()|aAsStTdDlLmMrReEvV09ſ \u00A0\u0085\u3000\u2028éß日本한ก١२Ⅷ½\u0301…。،।😀👍\u200D_-";
  std::string text;
  for (size_t length = random() % 40; length > 0; --length) {
    const char32_t any = static_cast<char32_t>(random() % 0x110000);
    const bool usable = any < 0xD800 || any > 0xDFFF;
    append_utf8(random() % 12 == 0 && usable ? any : usual[random() % usual.size()], text);
  }
  return text;
}

TEST(KnownPatterns, ScannersEqualTheGeneralEngine) {
  std::mt19937 random(17);
  for (const std::string_view expression : {kGpt2Pattern, kBloomPattern, kLlama3Pattern}) {
    ASSERT_NE(known_scanner(expression), nullptr);
    const SplitPattern general = SplitPattern::general_regex(expression, "test");
    const SplitPattern scanner = SplitPattern::regex(expression, "test");
    for (int round = 0; round < 8000; ++round) {
      const std::string text = fuzzed_text(random);
      for (size_t at = 0; at < text.size(); at += code_point_at(text, at).length) {
        ASSERT_EQ(scanner.match(text, at), general.match(text, at)) << expression << "\nat " << at << " of: " << text;
      }
    }
  }
}

TEST(KnownPatterns, Gpt2CutsAsPublished) {
  PreTokenizer pre_tokenizer;
  EXPECT_THAT(cut(make_split(SplitPattern::regex(kGpt2Pattern, ""), SplitBehavior::kIsolated, false),
                  "I'll  see 3 naïve dogs!!\n\n x "),
              ElementsAre("I", "'ll", " ", " see", " 3", " naïve", " dogs", "!!", "\n\n", " x", " "));
}

TEST(KnownPatterns, Llama3CutsAsPublished) {
  EXPECT_THAT(cut(make_split(SplitPattern::regex(kLlama3Pattern, ""), SplitBehavior::kIsolated, false),
                  "I'LL see 12345 (dogs)!!\n\n  x"),
              ElementsAre("I", "'LL", " see", " ", "123", "45", " (", "dogs", ")!!\n\n", " ", " x"));
}

TEST(TextPattern, AlternativesGroupsAndCounts) {
  EXPECT_THAT(cut("ab|cd", "xabcdy"), ElementsAre("x", "ab", "cd", "y"));
  EXPECT_THAT(cut("(?:ab)+", "ababxab"), ElementsAre("abab", "x", "ab"));
  EXPECT_THAT(cut("(?:ab|c){2,3}", "abcabc"), ElementsAre("abcab", "c"));
  EXPECT_THAT(cut("a{2}", "aaaaa"), ElementsAre("aa", "aa", "a"));
  EXPECT_THAT(cut("a{2,}b", "aaab"), ElementsAre("aaab"));
  EXPECT_THAT(cut("(a|ab)(c|bcd)x?", "abcd"), ElementsAre("abcd")) << "goes back to other alternatives";
}

TEST(TextPattern, LookaheadAndPossessiveRepetition) {
  EXPECT_THAT(cut("a+(?=b)", "aab aac"), ElementsAre("aa", "b aac"));
  EXPECT_THAT(cut("a(?!b)", "abac"), ElementsAre("ab", "a", "c"));
  EXPECT_THAT(cut("a++b", "aab"), ElementsAre("aab"));
  EXPECT_THAT(cut("a++ab|b", "aaab"), ElementsAre("aaa", "b")) << "gives nothing back";
}

TEST(TextPattern, Classes) {
  EXPECT_THAT(cut("[a-c\\]\\-]+", "xab]-cx"), ElementsAre("x", "ab]-c", "x"));
  EXPECT_THAT(cut("[^\\p{L}\\s]+", "é12 日"), ElementsAre("é", "12", " 日"));
  EXPECT_THAT(cut("[a[bc]]+", "xabcx"), ElementsAre("x", "abc", "x"));
  EXPECT_THAT(cut("[^a[bc]]+", "xabcx"), ElementsAre("x", "abc", "x"));
  EXPECT_THAT(cut("\\P{N}+", "ab1²c"), ElementsAre("ab", "1²", "c"));
  EXPECT_THAT(cut("\\S+", "a\u2003b"), ElementsAre("a", "\u2003", "b"));
}

TEST(TextPattern, CaseIsIgnoredWithUnicodesFoldings) {
  EXPECT_THAT(cut("(?i:'s)|x", "'S'ſ'sX"), ElementsAre("'S", "'ſ", "'s", "X"));
  EXPECT_THAT(cut("(?i:k)", "kK\u212A"), ElementsAre("k", "K", "\u212A"));
}

TEST(TextPattern, UnsupportedAndMalformedExpressionsAreNamed) {
  const auto message = [](const std::string& expression) {
    return user_error([&] { TextPattern pattern(expression, "tokenizer.json: pre_tokenizer"); });
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a*?b", "lazy"},
      {"(?<=a)b", "group"},
      {"\\p{Han}+", "Han"},
      {"\\bword", "\\b"},
      {"a.c", "'.'"},
      {"^a", "'^'"},
      {"[[:alpha:]]", "POSIX"},
      {"[a&&b]", "intersections"},
      {"(a", "without its ')'"},
      {"a)", "without its '('"},
      {"[a", "ends too soon"},
      {"a{3,2}", "no times"},
      {"a{2000}", "1,000"},
      {"a*", "empty text"},
      {"(?!a)", "empty text"},
      {"a**", "quantifier"},
      {"[b-a]", "range"},
      {"[]", "empty class"},
      {"\\", "ends too soon"},
      {"(?i:é)", "ASCII"},
      {"(?:a*)*b", "empty"},
      {"\\p{L", "\\p"},
      {"(?>ab)", "group"},
      {"(?i:[a-z])", "(?i:)"},
      {std::string(40, '(') + "a" + std::string(40, ')'), "nested"},
      {std::string(5000, 'a'), "longer"},
      {"(?:(?:(?:a{100}b){100}c){100})", "too large"}};
  for (const auto& [expression, part] : cases) {
    EXPECT_THAT(message(expression), HasSubstr(part)) << expression;
    EXPECT_THAT(message(expression), HasSubstr("tokenizer.json: pre_tokenizer")) << expression;
  }
}

TEST(TextPattern, ExpressionsThatTakeForeverAreAnError) {
  const TextPattern pattern("(?:a|aa)+b", "slow.json");
  EXPECT_THAT(user_error([&] { pattern.match(std::string(200, 'a'), 0); }), HasSubstr("slow.json"));
}

TEST(TextPattern, LongTextsTakeNoRecursion) {
  const TextPattern pattern("(?:ab)+c|a", "test");
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "ab";
  EXPECT_EQ(pattern.match(text, 0), 1U);
}

TEST(Split, Behaviors) {
  const std::string text = "the-final--countdown";
  EXPECT_THAT(cut("-", text, SplitBehavior::kRemoved), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(cut("-", text), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(cut("-", text, SplitBehavior::kMergedWithPrevious), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(cut("-", text, SplitBehavior::kMergedWithNext), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(cut("-", text, SplitBehavior::kContiguous), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(cut("[a-z]+", text, SplitBehavior::kRemoved, true), ElementsAre("the", "final", "countdown"));
}

TEST(Split, LiteralsAndDigits) {
  EXPECT_THAT(cut(make_split(SplitPattern::literal("--"), SplitBehavior::kIsolated, false), "a--b-c"),
              ElementsAre("a", "--", "b-c"));
  EXPECT_THAT(cut(make_split(SplitPattern::digits(), SplitBehavior::kIsolated, false), "a12²b\U00016FF4"),
              ElementsAre("a", "1", "2", "²", "b", "\U00016FF4"));
}

TEST(Metaspace, PrependsAndSplits) {
  EXPECT_THAT(cut(make_metaspace("▁", PrependScheme::kAlways, true), "a b  c"), ElementsAre("▁a", "▁b", "▁", "▁c"));
  EXPECT_THAT(cut(make_metaspace("▁", PrependScheme::kNever, false), "a b"), ElementsAre("a▁b"));
  EXPECT_THAT(cut(make_metaspace("▁", PrependScheme::kFirst, false), " a"), ElementsAre("▁a"));
}

TEST(TextNormalizer, ComposesAndLeavesLaterCharactersAlone) {
  EXPECT_EQ(nfc("plain"), "plain");
  EXPECT_EQ(nfc("e\u0301 \u212B \u1100\u1161\u11A8"), "\u00E9 \u00C5 \uAC01");
  EXPECT_EQ(nfc("a\u0315\u0300"), "\u00E0\u0315") << "marks are put in order";
  // Marks of Unicode 10 and later are not among those that `tokenizers` puts in order.
  EXPECT_EQ(nfc("q\u1DF6\u0323"), "q\u1DF6\u0323");
  EXPECT_EQ(nfc("q\u0315\u0EBA"), "q\u0315\u0EBA");
}

TEST(CharacterClasses, FollowUnicode) {
  const CharacterClasses& classes = CharacterClasses::table();
  for (const char32_t c : {U'a', U'Z', U'é', U'ß', U'日', U'한', U'ก'}) {
    EXPECT_EQ(classes.of(c), kLetter) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {U'0', U'²', U'Ⅷ', U'½', U'١'}) EXPECT_EQ(classes.of(c), kNumber) << static_cast<uint32_t>(c);
  for (const char32_t c : {U' ', U'\n', U'\u0085', U'\u00A0', U'\u3000'}) EXPECT_EQ(classes.of(c), kSpace);
  for (const char32_t c : {U'_', U'\u0301', U'😀', U'\u200B', char32_t{0x10FFFF}, char32_t{0x110000}}) {
    EXPECT_EQ(classes.of(c), 0) << static_cast<uint32_t>(c);
  }
}

}  // namespace
}  // namespace draftsmith::data
