// Regular expressions of pre-tokenizers, their scanners, and what Split does with matches.
#include "data/tokenizers/pre_tokenizer.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "tests/support/errors.h"

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

TEST(KnownPatterns, ScannersEqualOniguruma) {
  std::mt19937 random(17);
  for (const std::string_view expression : {kGpt2Pattern, kBloomPattern, kLlama3Pattern}) {
    ASSERT_NE(known_scanner(expression), nullptr);
    const SplitPattern general = SplitPattern::general_regex(expression, "test");
    const SplitPattern scanner = SplitPattern::regex(expression, "test");
    std::vector<TextPart> wanted;
    std::vector<TextPart> found;
    for (int round = 0; round < 8000; ++round) {
      const std::string text = fuzzed_text(random);
      general.cut(text, wanted);
      scanner.cut(text, found);
      ASSERT_EQ(found, wanted) << expression << "\ntext: " << text;
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
