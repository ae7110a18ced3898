// The metrics against the Python originals: sacreBLEU, rouge_score and NLTK's Porter stemmer.

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "metrics/bleu.h"
#include "metrics/bleu_tokenizers.h"
#include "metrics/chrf.h"
#include "metrics/rouge.h"
#include "tests/metrics/reference_run.h"
#include "tests/support/files.h"

namespace draftsmith::metrics {
namespace {

constexpr double kTolerance = 1e-9;  // sacreBLEU prints two decimals, rouge_score's users four

std::vector<std::string> texts(const std::filesystem::path& file) {
  auto lines = lines_of(read_file(file));
  for (auto& line : lines) line = unescape_sentences(line);
  return lines;
}

// sacreBLEU's signature, with its version replaced by ours.
std::string with_our_version(std::string signature) {
  return signature.substr(0, signature.rfind(':') + 1) + std::string(kMetricsVersion);
}

void compare_bleu(const std::vector<std::string>& hypotheses, const References& references,
                  const nlohmann::json& expected) {
  for (const char* name : {"13a", "none", "char", "intl", "zh"}) {
    SCOPED_TRACE(name);
    const std::string key = std::string("bleu_") + name;
    const auto tokenizer = make_bleu_tokenizer(name);
    const BleuScore score = corpus_bleu(hypotheses, references, *tokenizer);
    EXPECT_NEAR(score.score, expected.at(key).get<double>(), kTolerance);
    EXPECT_EQ(to_string(score), expected.at(key + "_text").get<std::string>());
    EXPECT_EQ(bleu_signature(references, *tokenizer), with_our_version(expected.at(key + "_signature")));
  }
}

void compare_chrf(const std::vector<std::string>& hypotheses, const References& references,
                  const nlohmann::json& expected) {
  for (const int64_t word_order : {0, 2}) {
    SCOPED_TRACE(word_order);
    const std::string key = "chrf_" + std::to_string(word_order);
    const ChrfOptions options{.word_order = word_order};
    const double score = chrf_from_sums(chrf_statistics(hypotheses, references, options).sum(), options);
    EXPECT_NEAR(score, expected.at(key).get<double>(), kTolerance);
    EXPECT_EQ(chrf_name(options), expected.at(key + "_name").get<std::string>());
    EXPECT_EQ(chrf_signature(references, options), with_our_version(expected.at(key + "_signature")));
  }
}

void compare_rouge(const std::vector<std::string>& hypotheses, const References& references,
                   const nlohmann::json& expected) {
  for (const bool stemmer : {false, true}) {
    const RougeScore score = rouge_from_sums(rouge_statistics(hypotheses, references, {.stemmer = stemmer}).sum());
    for (size_t type = 0; type < kRougeTypes; ++type) {
      const std::string key = std::string(kRougeNames[type]) + (stemmer ? "_stemmed" : "");
      SCOPED_TRACE(key);
      const auto& values = expected.at(key);
      EXPECT_NEAR(score[type].precision, values.at(0).get<double>(), kTolerance);
      EXPECT_NEAR(score[type].recall, values.at(1).get<double>(), kTolerance);
      EXPECT_NEAR(score[type].f1, values.at(2).get<double>(), kTolerance);
    }
  }
}

TEST(MetricsAgainstPeers, EqualSacrebleuAndRougeScoreOnCorruptedReferences) {
  std::string why;
  const auto folder = run_reference("scores", why);
  if (!folder) GTEST_SKIP() << why;
  const auto expected = load_json(*folder / "expected.json");
  ASSERT_GE(expected.size(), 12U);
  for (const auto& [name, scores] : expected.items()) {
    SCOPED_TRACE(name);
    const auto hypotheses = texts(*folder / (name + ".hyp"));
    std::vector<std::vector<std::string>> streams;
    for (int r = 0; r < scores.at("references").get<int>(); ++r) {
      streams.push_back(texts(*folder / (name + ".ref" + std::to_string(r))));
    }
    const References references = references_from_streams(streams);
    ASSERT_EQ(hypotheses.size(), references.size());
    compare_bleu(hypotheses, references, scores);
    compare_chrf(hypotheses, references, scores);
    compare_rouge(hypotheses, references, scores);
  }
  std::filesystem::remove_all(*folder);
}

TEST(PorterAgainstPeers, EqualsNltkOnEveryWordTypeOfTheData) {
  std::string why;
  const auto folder = run_reference("porter", why);
  if (!folder) GTEST_SKIP() << why;
  const auto lines = lines_of(read_file(*folder / "stems.tsv"));
  ASSERT_GT(lines.size(), 90000U);
  size_t wrong = 0;
  for (const auto& line : lines) {
    const size_t tab = line.find('\t');
    const std::string word = line.substr(0, tab);
    if (porter_stem(word) == line.substr(tab + 1)) continue;
    if (++wrong <= 20) ADD_FAILURE() << word << ": " << porter_stem(word) << " instead of " << line.substr(tab + 1);
  }
  EXPECT_EQ(wrong, 0U);
  std::filesystem::remove_all(*folder);
}

}  // namespace
}  // namespace draftsmith::metrics
