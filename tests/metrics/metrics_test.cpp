// The metrics on cases small enough to compute by hand; they need no peers and no data.

#include <cmath>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/options.h"
#include "metrics/metric.h"
#include "tests/support/errors.h"

namespace draftsmith::metrics {
namespace {

TEST(Text, WordsAreSplitAtUnicodeWhiteSpace) {
  EXPECT_THAT(split_words(" a\u00A0b\u3000c\t\x1c d "), ElementsAre("a", "b", "c", "d"));
  EXPECT_TRUE(split_words("\u2028 ").empty());
}

TEST(Text, AnInvalidByteIsOneReplacementCharacter) {
  EXPECT_EQ(code_points("a\xC0\x80z"), (std::vector<char32_t>{'a', 0xFFFD, 0xFFFD, 'z'}));
  EXPECT_EQ(code_points("\xED\xA0\x80").front(), char32_t{0xFFFD});
}

std::unique_ptr<const Metric> metric_named(const std::string& name) {
  MetricOptions options;
  options.name = name;
  return make_metric(options);
}

std::vector<double> sums_of(const Metric& metric, const std::string& hypothesis, std::vector<std::string> references) {
  const std::vector<std::string> hypotheses{hypothesis};
  const References all{std::move(references)};
  return metric.statistics({hypotheses, all}).sum();
}

double score_of(const std::string& name, const std::string& hypothesis, std::vector<std::string> references,
                size_t which = 0) {
  const auto metric = metric_named(name);
  return metric->score(sums_of(*metric, hypothesis, std::move(references)), which);
}

nlohmann::json details_of(const std::string& name, const std::string& hypothesis, std::vector<std::string> references) {
  const auto metric = metric_named(name);
  return metric->details(sums_of(*metric, hypothesis, std::move(references)));
}

std::string bleu_signature(const References& references, const std::string& tokenizer) {
  MetricOptions options;
  options.tokenize = tokenizer;
  return make_metric(options)->signature(references);
}

TEST(Bleu, TokenizersSplitPunctuationCharactersOrChinese) {
  EXPECT_THAT(bleu_tokens("It's 1,000.5 - \"ok\", 5-year.", "13a"),
              ElementsAre("It's", "1,000.5", "-", "\"", "ok", "\"", ",", "5", "-", "year", "."));
  EXPECT_THAT(bleu_tokens("&lt;a&gt; &amp;", "13a"), ElementsAre("<", "a", ">", "&"));
  EXPECT_THAT(bleu_tokens("ä 长\u3000b", "char"), ElementsAre("ä", "长", "b"));
  EXPECT_THAT(bleu_tokens("我在New York，3.5元.", "zh"),
              ElementsAre("我", "在", "New", "York", "，", "3.5", "元", "."));
}

TEST(Bleu, IsTheGeometricMeanOfClippedPrecisionsTimesTheBrevityPenalty) {
  EXPECT_EQ(details_of("bleu", "a b c d", {"a b c d e"}).at("correct").dump(), "[4,3,2,1]");
  EXPECT_DOUBLE_EQ(score_of("bleu", "a b c d", {"a b c d e"}), 100 * std::exp(1 - 5.0 / 4.0));
  EXPECT_EQ(details_of("bleu", "the the the the", {"the cat"}).at("correct").dump(), "[1,0,0,0]");
}

TEST(Bleu, OrdersWithoutMatchAreHalvedOneAfterAnother) {
  const nlohmann::json precisions = details_of("bleu", "a b x y z", {"a b c d e"}).at("precisions");
  EXPECT_DOUBLE_EQ(precisions.at(1), 25);
  EXPECT_DOUBLE_EQ(precisions.at(2), 100.0 / (2 * 3));
  EXPECT_DOUBLE_EQ(precisions.at(3), 100.0 / (4 * 2));
}

TEST(Bleu, TakesTheNearestReferenceLengthAndTheLargestCountOfAnyReference) {
  const nlohmann::json details = details_of("bleu", "a a b", {"a a", "b c d e e e"});
  EXPECT_EQ(details.at("reference_length"), 2);
  EXPECT_EQ(details.at("correct").at(0), 3);
}

TEST(Bleu, SignatureSaysHowManyReferencesThereAre) {
  EXPECT_EQ(bleu_signature({{"a", "b"}}, "13a"),
            "nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:draftsmith-0.1.0");
  EXPECT_EQ(bleu_signature({{"a", "b"}, {"c"}}, "none"),
            "nrefs:var|case:mixed|eff:no|tok:none|smooth:exp|version:draftsmith-0.1.0");
}

TEST(Bleu, AnUnknownTokenizerIsAUserErrorThatNamesTheKnownOnes) {
  EXPECT_THAT(error_of([] { bleu_signature({}, "zhh"); }),
              testing::AllOf(testing::HasSubstr("13a, none, char, zh"), testing::HasSubstr("did you mean zh?")));
}

TEST(Bleu, TheDefaultTokenizerFollowsTheLanguage) {
  EXPECT_EQ(default_bleu_tokenizer("zh"), "zh");
  EXPECT_EQ(default_bleu_tokenizer("ja"), "char");
  EXPECT_EQ(default_bleu_tokenizer("de"), "13a");
  EXPECT_EQ(default_bleu_tokenizer(""), "13a");
}

TEST(Chrf, WeighsRecallFourTimes) {
  // "ab" against "abcd", order 1: precision 1, recall ½; order 2: precision 1, recall ⅓; no more orders on both sides.
  const double recall = (1.0 / 2 + 1.0 / 3) / 2;
  EXPECT_DOUBLE_EQ(score_of("chrf", "ab", {"abcd"}), 100 * 5 * recall / (4 + recall));
}

TEST(Porter, KeepsIrregularWordsAndFollowsNltkWhereItDepartsFromPorter) {
  std::string stems;
  for (const char* word : {"dying", "spied", "enjoy", "happy", "relational", "hopping", "is"}) {
    stems += porter_stem(word) + " ";
  }
  EXPECT_EQ(stems, "die spi enjoy happi relat hop is ");
}

// Places of rouge's scores.
constexpr size_t kRougeL = 0, kRouge1 = 1, kRouge2 = 2, kRougeLsum = 3;

TEST(Rouge, CountsUnigramsBigramsAndSubsequences) {
  const auto score = [](size_t which) {
    return score_of("rouge", "police kill the gunman", {"police killed the gunman"}, which);
  };
  EXPECT_DOUBLE_EQ(score(kRouge1), 0.75);
  EXPECT_DOUBLE_EQ(score(kRouge2), 1.0 / 3);
  EXPECT_DOUBLE_EQ(score(kRougeL), 0.75);
  MetricOptions options;
  options.name = "rouge";
  options.stemmer = true;
  const auto stemming = make_metric(options);
  const auto sums = sums_of(*stemming, "police kill the gunman", {"police killed the gunman"});
  EXPECT_DOUBLE_EQ(stemming->score(sums, kRougeL), 1);
}

TEST(Rouge, LsumUnitesTheSentencesSubsequences) {
  // Lin (2004) §3.2: reference w1..w5, candidates "w1 w2 w6 w7 w8" and "w1 w3 w8 w9 w5": union LCS w1 w2 w3 w5.
  const auto details = details_of("rouge", "w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5", {"w1 w2 w3 w4 w5"});
  EXPECT_DOUBLE_EQ(details.at("rougeLsum_recall"), 4.0 / 5);
  EXPECT_DOUBLE_EQ(details.at("rougeLsum_precision"), 4.0 / 10);
}

TEST(Rouge, TakesTheBestReferenceForEachTypeByItself) {
  const std::vector<std::string> references{"d c b a", "a b x y z"};
  EXPECT_DOUBLE_EQ(score_of("rouge", "a b c d", references, kRouge1), 1);
  EXPECT_DOUBLE_EQ(details_of("rouge", "a b c d", references).at("rouge2_recall"), 1.0 / 4);
}

TEST(Rouge, EmptyTextsScoreZero) {
  for (const size_t which : {kRouge1, kRouge2, kRougeL, kRougeLsum}) {
    EXPECT_EQ(score_of("rouge", "", {""}, which), 0);
    EXPECT_EQ(score_of("rouge", "长城", {"a"}, which), 0);
  }
}

// rouge_score counts a-z and 0-9 alone: equal texts of other letters score 0, which a warning says.
TEST(Rouge, TextsWithoutCountedWordsAreWarnedOf) {
  const auto rouge = metric_named("rouge");
  const auto warning = [&](const std::string& text) {
    const std::vector<std::string> hypotheses{text, "a"};
    const References references{{text, "b"}, {"a"}};
    return rouge->warning({hypotheses, references});
  };
  for (const char* text : {"Καλημέρα κόσμε", "Привет, мир!", "今天天气很好", "안녕하세요 세계", "مرحبا بالعالم",
                           "ＡＢＣ １２３", "?! …"}) {
    EXPECT_TRUE(warning(text).starts_with("2 of 5 texts have no word that ROUGE counts")) << text << warning(text);
    EXPECT_EQ(score_of("rouge", text, {text}), 0) << text;
  }
  for (const char* text : {"мир 2024", "über Ähren", "1 2 3", " "}) EXPECT_EQ(warning(text), "") << text;
}

TEST(Rouge, HasNoOtherTokenizers) {
  MetricOptions options;
  options.name = "rouge";
  options.tokenize = "char";
  EXPECT_THAT(option_problems(options, "metric"), HasSubstr("metric.tokenize"));
}

TEST(MetricRegistry, HypothesesAreOneLineThatScoresAsTheText) {
  const auto rouge = metric_named("rouge");
  EXPECT_EQ(metric_named("bleu")->line_of("a\nb"), "a b");
  EXPECT_EQ(rouge->line_of("a\r\nb"), "a\\nb");
  EXPECT_EQ(rouge->text_of("a\\nb<n>c\\"), "a\nb\nc\\");
}

TEST(MetricRegistry, EachMetricSaysItsScoresAndTheirScale) {
  EXPECT_THAT(scoring_metrics(), ElementsAre("bleu", "rouge", "chrf", "command"));
  EXPECT_EQ(metric_named("rouge")->leading_score(), "rougeL");
  EXPECT_EQ(metric_named("rouge")->point(), 0.01);
  EXPECT_EQ(metric_named("rouge")->digits(), 4);
  EXPECT_EQ(metric_named("chrf")->digits(), 2);
  EXPECT_FALSE(metric_named("bleu")->lower_is_better());
  EXPECT_EQ(metric_named("none")->leading_score(), "");
  EXPECT_FALSE(metric_named("none")->signature({}).empty());
}

TEST(MetricRegistry, OptionsAreThoseOfAllMetricsInOneTable) {
  EXPECT_EQ(options_to_json(MetricOptions()).dump(),
            R"({"name":"bleu","tokenize":null,"stemmer":false,"chrf_word_order":0,)"
            R"("command":"","label":"","input":"tsv","point":1.0,"lower_is_better":false,"timeout":600.0})");
  MetricOptions options;
  options.name = "rouge";
  options.stemmer = true;
  EXPECT_EQ(make_metric(options)->signature({{"a"}}), "nrefs:1|stemmer:yes|lines:mean|version:draftsmith-0.1.0");
}

TEST(MetricRegistry, AnUnknownMetricIsAUserErrorThatNamesTheKnownOnesAndTheNearest) {
  EXPECT_THAT(error_of([] { metric_named("blue"); }),
              testing::AllOf(testing::HasSubstr("bleu, rouge, chrf, none"), testing::HasSubstr("did you mean bleu?")));
}

}  // namespace
}  // namespace draftsmith::metrics
