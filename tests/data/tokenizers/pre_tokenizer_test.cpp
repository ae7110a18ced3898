// Pre-tokenizers, and regular expressions with the meaning that Hugging Face `tokenizers` gives them: expected cuts are
// those of its Split.
#include "data/tokenizers/pre_tokenizer.h"

#include <algorithm>
#include <span>

#include <gmock/gmock.h>

#include "base/utf8.h"
#include "tests/data/tokenizers/tokenizer_files.h"
#include "tests/support/errors.h"

namespace draftsmith::data {
namespace {

std::vector<std::string> cut(PreTokenizerStep step, std::string_view text) {
  const Words words = split_words({std::move(step)}, text, true);
  return {words.views.begin(), words.views.end()};
}

std::vector<std::string> cut(std::string_view expression, std::string_view text,
                             SplitBehavior behavior = SplitBehavior::kIsolated, bool invert = false) {
  return cut(make_split(regex_pattern(expression, "test"), behavior, invert), text);
}

TEST(PreTokenizer, Gpt2AndLlama3CutAsPublished) {
  EXPECT_THAT(cut(kGpt2Pattern, "I'll  see 3 naïve dogs!!\n\n x "),
              ElementsAre("I", "'ll", " ", " see", " 3", " naïve", " dogs", "!!", "\n\n", " x", " "));
  EXPECT_THAT(cut(kLlama3Pattern, "I'LL see 12345 (dogs)!!\n\n  x"),
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
  EXPECT_THAT(cut(make_split(literal_pattern("--"), SplitBehavior::kIsolated, false), "a--b-c"),
              ElementsAre("a", "--", "b-c"));
  EXPECT_THAT(cut(make_split(digits_pattern(), SplitBehavior::kIsolated, false), "a12²b\U00016FF4"),
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

// Returns the matches and what lies between them.
std::vector<std::string> cut_by(std::string_view expression, std::string_view text) {
  std::vector<std::string> parts;
  size_t gap = 0;
  const auto add = [&](size_t begin, size_t end) {
    if (begin < end) parts.emplace_back(text.substr(begin, end - begin));
  };
  for (const TextMatch match : regex_pattern(expression, "test")(text)) {
    add(gap, match.begin);
    add(match.begin, match.end);
    gap = match.end;
  }
  add(gap, text.size());
  return parts;
}

TEST(SplitPattern, EmptyMatchesCut) {
  EXPECT_THAT(cut_by("a*", "bab"), ElementsAre("b", "a", "b"));
  EXPECT_THAT(cut_by("a*", "bb"), ElementsAre("b", "b"));
  EXPECT_THAT(cut_by("(?=(\\d{3})+(?!\\d))", "a1234567"), ElementsAre("a1", "234", "567"));
  EXPECT_THAT(cut_by("(?<=[a-z])(?=[A-Z])", "camelCaseText"), ElementsAre("camel", "Case", "Text"));
  EXPECT_THAT(cut_by("(?=日)", "é日日"), ElementsAre("é", "日", "日")) << "goes on behind a whole character";
  EXPECT_THAT(regex_pattern("a|(?=c)", "test")("xac"), ElementsAre(TextMatch{1, 2}))
      << "no empty match where another ends";
}

TEST(SplitPattern, Classes) {
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

TEST(SplitPattern, CaseIsIgnoredWithUnicodesFoldings) {
  EXPECT_THAT(cut_by("(?i:'s)|x", "'S'ſ'sX"), ElementsAre("'S", "'ſ", "'s", "X"));
  EXPECT_THAT(cut_by("(?i:k)", "kK\u212A"), ElementsAre("k", "K", "\u212A"));
  EXPECT_THAT(cut_by("(?i:é)", "Éé"), ElementsAre("É", "é"));
  EXPECT_THAT(cut_by("(?i:[a-c]+)x", "aBCx"), ElementsAre("aBCx"));
  // U+0345 is no letter, but a letter is its other case: only classes in brackets take it.
  EXPECT_TRUE(regex_pattern("(?i:\\p{L})", "test")("\u0345").empty());
  EXPECT_EQ(regex_pattern("(?i:[\\p{L}])", "test")("\u0345").size(), 1U);
}

TEST(SplitPattern, LettersAndNumbersAreUnicode16s) {
  const auto holds = [](std::span<const CodePointRange> ranges, char32_t c) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [c](const auto& range) { return range.first <= c && c <= range.last; });
  };
  std::string text;
  std::vector<TextMatch> letters, others;
  for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 7) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    const size_t begin = text.size();
    append_utf8(c, text);
    const bool letter = holds(letter_ranges(), c);
    if (letter) letters.push_back({begin, text.size()});
    if (!letter && !holds(number_ranges(), c) && !is_white_space(c)) others.push_back({begin, text.size()});
  }
  EXPECT_TRUE(regex_pattern("\\p{L}", "test")(text) == letters);
  EXPECT_TRUE(regex_pattern("[^\\p{Letter}\\p{Number}\\s]", "test")(text) == others);
  EXPECT_TRUE(holds(letter_ranges(), 0x105C0)) << "a letter since Unicode 16 (Todhri)";
}

TEST(SplitPattern, OnlyEscapedClassesAreExpanded) {
  EXPECT_EQ(expand_classes("\\\\p{L}\\p{Lu}[\\]\\d]\\w"), "\\\\p{L}\\p{Lu}[\\]\\d]\\w");
  EXPECT_THAT(expand_classes("\\p{N}"), testing::StartsWith("(?-i:[\\x{30}-\\x{39}\\x{B2}-"));
  EXPECT_THAT(expand_classes("[^\\P{N}]"), testing::StartsWith("[^[^\\x{30}-\\x{39}"));
  EXPECT_THAT(expand_classes("[[a]\\S]\\s"), testing::StartsWith("[[a][^\\x{9}-\\x{D}"));
}

TEST(SplitPattern, MalformedExpressionsAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"(a", "unmatched parenthesis"},
      {"[a", "char-class"},
      {"*a", "target of repeat operator"},
      {"\\p{Hann}", "Hann"},
      {std::string(10'000, '(') + "a" + std::string(10'000, ')'), "parse depth"}};
  for (const auto& [expression, part] : cases) {
    const std::string message = error_of([&] { regex_pattern(expression, "tokenizer.json: pre_tokenizer"); });
    EXPECT_THAT(message, HasSubstr(part)) << expression;
    EXPECT_THAT(message, HasSubstr("tokenizer.json: pre_tokenizer")) << expression;
    EXPECT_THAT(message, HasSubstr("Oniguruma's syntax")) << expression;
  }
}

TEST(SplitPattern, ExpressionsThatTakeForeverAreAnError) {
  const SplitPattern pattern = regex_pattern("(?:a|aa)+(?:b|c)", "slow.json");
  EXPECT_THAT(error_of([&] { pattern(std::string(200, 'a') + "d"); }),
              AllOf(HasSubstr("slow.json"), HasSubstr("retry-limit")));
}

}  // namespace
}  // namespace draftsmith::data
