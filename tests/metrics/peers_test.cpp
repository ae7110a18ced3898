// The metrics against the Python originals: sacreBLEU, rouge_score and NLTK's Porter stemmer.

#include <filesystem>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "base/files.h"
#include "base/json.h"
#include "metrics/metric.h"
#include "tests/support/files.h"
#include "tests/support/paths.h"

namespace draftsmith::metrics {
namespace {

constexpr double kTolerance = 1e-9;  // sacreBLEU prints two decimals, rouge_score's users four

namespace fs = std::filesystem;

// Runs a command of tools/reference_metrics.py in the peers' virtual environment; skips without the peers or the data.
class MetricsAgainstPeers : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(test::peers_python())) {
      GTEST_SKIP() << "no Python with sacrebleu, rouge_score and nltk at " << test::peers_python()
                   << " (DRAFTSMITH_PEERS_PYTHON)";
    }
    if (!fs::exists(test::data_dir() / "multi30k")) {
      GTEST_SKIP() << "no data at " << test::data_dir() << " (DRAFTSMITH_DATA)";
    }
  }

  // Returns the folder with the command's output.
  fs::path run_reference(const std::string& command) const {
    const std::string script = test::source_dir() / "tools/reference_metrics.py";
    const ShellResult done = run_shell(fmt::format("'{}' '{}' {} '{}' '{}'", test::peers_python().string(), script,
                                                   command, test::data_dir().string(), directory_.path().string()),
                                       "");
    if (!done.succeeded()) throw std::runtime_error("the reference script failed: " + done.errors);
    return directory_.path();
  }

  const TemporaryDirectory directory_;
};

using PorterAgainstPeers = MetricsAgainstPeers;
using TokensAgainstPeers = MetricsAgainstPeers;

std::vector<std::string> texts(const fs::path& file) {
  MetricOptions options;
  options.name = "rouge";
  const auto rouge = make_metric(options);
  auto lines = lines_of(read_file(file));
  for (auto& line : lines) line = rouge->text_of(line);
  return lines;
}

// Compares score and signature. Returns the metric's text.
std::string check_score(const MetricOptions& options, const Segments& segments, const nlohmann::json& expected,
                        const std::string& key) {
  const auto metric = make_metric(options);
  const auto sums = metric->statistics(segments).sum();
  EXPECT_NEAR(metric->score(sums, 0), expected.at(key).get<double>(), kTolerance);
  const std::string signature = metric->signature(segments.references);
  const std::string theirs = expected.at(key + "_signature");  // with a version of its own
  EXPECT_EQ(signature, theirs.substr(0, theirs.rfind(':') + 1) + std::string(kMetricsVersion));
  return metric->text(sums, signature);
}

void compare_bleu(const Segments& segments, const nlohmann::json& expected) {
  for (const std::string& name : bleu_tokenizer_names()) {
    SCOPED_TRACE(name);
    const std::string key = "bleu_" + name;
    MetricOptions options;
    options.tokenize = name;
    const std::string text = check_score(options, segments, expected, key);
    EXPECT_TRUE(text.ends_with(" = " + expected.at(key + "_text").get<std::string>() + "\n")) << text;
  }
}

void compare_chrf(const Segments& segments, const nlohmann::json& expected) {
  for (const int64_t word_order : {0, 2}) {
    SCOPED_TRACE(word_order);
    const std::string key = "chrf_" + std::to_string(word_order);
    MetricOptions options;
    options.name = "chrf";
    options.chrf_word_order = word_order;
    const std::string text = check_score(options, segments, expected, key);
    EXPECT_TRUE(text.starts_with(expected.at(key + "_name").get<std::string>() + "|")) << text;
  }
}

void compare_rouge(const Segments& segments, const nlohmann::json& expected, MetricOptions options,
                   const std::string& suffix) {
  options.name = "rouge";
  const auto metric = make_metric(options);
  const auto sums = metric->statistics(segments).sum();
  const auto details = metric->details(sums);
  const auto names = metric->scores();
  for (size_t which = 0; which < names.size(); ++which) {
    SCOPED_TRACE(names[which] + suffix);
    const auto& values = expected.at(names[which] + suffix);
    EXPECT_NEAR(details.at(names[which] + "_precision").get<double>(), values.at(0).get<double>(), kTolerance);
    EXPECT_NEAR(details.at(names[which] + "_recall").get<double>(), values.at(1).get<double>(), kTolerance);
    EXPECT_NEAR(metric->score(sums, which), values.at(2).get<double>(), kTolerance);
  }
}

void compare_rouge(const Segments& segments, const nlohmann::json& expected) {
  MetricOptions options;
  compare_rouge(segments, expected, options, "");
  options.stemmer = true;
  compare_rouge(segments, expected, options, "_stemmed");
}

TEST_F(MetricsAgainstPeers, EqualSacrebleuAndRougeScoreOnCorruptedReferences) {
  const fs::path folder = run_reference("scores");
  const auto expected = load_json(folder / "expected.json");
  ASSERT_GE(expected.size(), 12U);
  for (const auto& [name, scores] : expected.items()) {
    SCOPED_TRACE(name);
    const auto hypotheses = texts(folder / (name + ".hyp"));
    std::vector<std::vector<std::string>> streams;
    for (int r = 0; r < scores.at("references").get<int>(); ++r) {
      streams.push_back(texts(folder / (name + ".ref" + std::to_string(r))));
    }
    const References references = references_from_streams(streams);
    ASSERT_EQ(hypotheses.size(), references.size());
    const Segments segments{hypotheses, references};
    compare_bleu(segments, scores);
    compare_chrf(segments, scores);
    compare_rouge(segments, scores);
  }
}

TEST_F(PorterAgainstPeers, EqualsNltkOnEveryWordTypeOfTheData) {
  const fs::path folder = run_reference("porter");
  const auto lines = lines_of(read_file(folder / "stems.tsv"));
  ASSERT_GT(lines.size(), 90000U);
  size_t wrong = 0;
  for (const auto& line : lines) {
    const size_t tab = line.find('\t');
    const std::string word = line.substr(0, tab);
    if (porter_stem(word) == line.substr(tab + 1)) continue;
    if (++wrong <= 20) ADD_FAILURE() << word << ": " << porter_stem(word) << " instead of " << line.substr(tab + 1);
  }
  EXPECT_EQ(wrong, 0U);
}

TEST_F(TokensAgainstPeers, EqualSacrebleuOnEveryTokenOfAwkwardLines) {
  const fs::path folder = run_reference("tokens");
  const nlohmann::json json = load_json(folder / "tokens.json");
  const std::vector<std::string> lines = json.at("lines");
  ASSERT_GT(lines.size(), 900U);
  for (const std::string& name : bleu_tokenizer_names()) {
    SCOPED_TRACE(name);
    const std::vector<std::string> expected = json.at("bleu").at(name);
    ASSERT_EQ(lines.size(), expected.size());
    int wrong = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string tokens = fmt::format("{}", fmt::join(bleu_tokens(lines[i], name), " "));
      if (tokens == expected[i]) continue;
      if (++wrong <= 5) ADD_FAILURE() << lines[i] << "\nis      " << tokens << "\nexpected " << expected[i];
    }
    EXPECT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace draftsmith::metrics
