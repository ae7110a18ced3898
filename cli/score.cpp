// `draftsmith score`: computes BLEU, chrF or ROUGE of a file of hypotheses, with intervals and a paired test against a
// second system.

#include <filesystem>
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "data/text/readers.h"
#include "metrics/bleu.h"
#include "metrics/chrf.h"
#include "metrics/metric.h"
#include "metrics/rouge.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;
using metrics::Metric;
using metrics::NamedScore;
using metrics::PairedTest;
using nlohmann::ordered_json;

struct ScoreFlags {
  metrics::MetricOptions metric;
  metrics::ResamplingOptions resampling;
  fs::path hypotheses;
  std::vector<fs::path> references;
  fs::path other;  // hypotheses of a second system
  bool json = false;
};

std::vector<std::string> read_texts(const fs::path& file, const metrics::MetricOptions& metric) {
  auto lines = data::read_lines(file);
  if (metric.name == "rouge") {
    for (auto& line : lines) line = metrics::unescape_sentences(line);
  }
  return lines;
}

void require_same_lines(const fs::path& file, size_t lines, const fs::path& hypotheses, size_t expected) {
  if (lines == expected) return;
  throw UserError({.where = file.string(),
                   .what = "the files differ in their number of lines",
                   .expected = fmt::format("{} lines, as in {}", expected, hypotheses.string()),
                   .found = fmt::format("{} lines", lines),
                   .hint = "each line is compared with the same line of the other files"});
}

ordered_json interval_json(const metrics::Interval& interval) {
  return {interval.low, interval.high};
}

struct Report {
  std::vector<NamedScore> scores;
  std::vector<std::pair<std::string, std::pair<PairedTest, PairedTest>>> tests;  // bootstrap, randomisation
};

ordered_json bleu_details(const metrics::LineStatistics& statistics) {
  const auto bleu = metrics::bleu_from_sums(statistics.sum());
  return {{"precisions", bleu.precisions},
          {"correct", bleu.correct},
          {"total", bleu.total},
          {"brevity_penalty", bleu.brevity_penalty},
          {"hypothesis_length", bleu.hypothesis_length},
          {"reference_length", bleu.reference_length}};
}

ordered_json rouge_details(const metrics::LineStatistics& statistics) {
  ordered_json json;
  const auto rouge = metrics::rouge_from_sums(statistics.sum());
  for (size_t type = 0; type < metrics::kRougeTypes; ++type) {
    json[std::string(metrics::kRougeNames[type]) + "_precision"] = rouge[type].precision;
    json[std::string(metrics::kRougeNames[type]) + "_recall"] = rouge[type].recall;
  }
  return json;
}

ordered_json test_json(const PairedTest& test) {
  return {{"difference", test.difference}, {"p_value", test.p_value}};
}

void print_json(const Metric& metric, const metrics::LineStatistics& statistics, const Report& report,
                const std::string& signature) {
  ordered_json json{{"metric", metric.options().name}, {"lines", statistics.lines()}, {"signature", signature}};
  for (const auto& score : report.scores) {
    json[score.name] = score.value;
    json[score.name + "_ci95"] = interval_json(score.interval);
  }
  if (metric.options().name == "bleu") json.update(bleu_details(statistics));
  if (metric.options().name == "rouge") json.update(rouge_details(statistics));
  for (const auto& [name, tests] : report.tests) {
    auto& entry = json["compared"][name];
    entry["other"] = tests.first.score_b;
    entry["bootstrap"] = test_json(tests.first);
    entry["bootstrap"]["difference_ci95"] = interval_json(tests.first.difference_interval);
    entry["randomization"] = test_json(tests.second);
  }
  std::cout << json.dump(2) << "\n";
}

void print_text(const Metric& metric, const metrics::LineStatistics& statistics, const Report& report,
                const std::string& signature, int64_t resamples) {
  const std::string& name = metric.options().name;
  const bool rouge = name == "rouge";
  if (name == "bleu") {
    fmt::print("BLEU|{} = {}\n", signature, to_string(metrics::bleu_from_sums(statistics.sum())));
  } else if (name == "chrf") {
    fmt::print("{}|{} = {:.2f}\n", metrics::chrf_name({.word_order = metric.options().chrf_word_order}), signature,
               report.scores.front().value);
  } else {
    fmt::print("ROUGE|{}\n", signature);
    for (const auto& score : report.scores) fmt::print("{:<10}{:.4f}\n", score.name, score.value);
  }
  for (const auto& score : report.scores) {
    fmt::print(fmt::runtime(rouge ? "{}: 95 % interval {:.4f} to {:.4f} ({} bootstrap resamples of {} lines)\n"
                                  : "{}: 95 % interval {:.2f} to {:.2f} ({} bootstrap resamples of {} lines)\n"),
               score.name, score.interval.low, score.interval.high, resamples, statistics.lines());
  }
  for (const auto& [score, tests] : report.tests) {
    fmt::print(
        "{}: difference {:+.4f} to the other system's {:.4f}, 95 % interval {:+.4f} to {:+.4f}, "
        "p = {:.4f} (paired bootstrap), p = {:.4f} (randomization)\n",
        score, tests.first.difference, tests.first.score_b, tests.first.difference_interval.low,
        tests.first.difference_interval.high, tests.first.p_value, tests.second.p_value);
  }
}

int run_score(const ScoreFlags& flags) {
  const Metric metric(flags.metric);
  const auto hypotheses = read_texts(flags.hypotheses, flags.metric);
  if (hypotheses.empty()) {
    throw UserError({.where = flags.hypotheses.string(),
                     .what = "there is nothing to score",
                     .expected = "at least one line",
                     .found = "an empty file",
                     .hint = ""});
  }
  std::vector<std::vector<std::string>> streams;
  for (const auto& file : flags.references) {
    streams.push_back(read_texts(file, flags.metric));
    require_same_lines(file, streams.back().size(), flags.hypotheses, hypotheses.size());
  }
  const metrics::References references = metrics::references_from_streams(streams);
  const metrics::LineStatistics statistics = metric.statistics(hypotheses, references);
  Report report;
  report.scores = metrics::all_scores(metric, statistics, flags.resampling);
  if (!flags.other.empty()) {
    const auto other = read_texts(flags.other, flags.metric);
    require_same_lines(flags.other, other.size(), flags.hypotheses, hypotheses.size());
    const auto other_statistics = metric.statistics(other, references);
    auto trials = flags.resampling;
    trials.resamples *= 10;
    for (size_t which = 0; which < metric.names().size(); ++which) {
      const auto score = metric.function(which);
      report.tests.push_back({metric.names()[which],
                              {metrics::paired_bootstrap(statistics, other_statistics, score, flags.resampling),
                               metrics::paired_randomization(statistics, other_statistics, score, trials)}});
    }
  }
  const std::string signature = metric.signature(references);
  if (flags.json) {
    print_json(metric, statistics, report, signature);
  } else {
    print_text(metric, statistics, report, signature, flags.resampling.resamples);
  }
  return 0;
}

}  // namespace

std::function<int()> add_score(CLI::App& app) {
  auto flags = std::make_shared<ScoreFlags>();
  app.add_option("metric", flags->metric.name, "bleu, chrf or rouge")->required();
  app.add_option("--hyp", flags->hypotheses, "File of hypotheses, one a line")->required();
  app.add_option("--ref", flags->references, "File of references, one a line; several files are several references")
      ->required();
  app.add_option("--tokenize", flags->metric.tokenize, "BLEU's tokenizer: 13a, none or char")->capture_default_str();
  app.add_flag("--stemmer", flags->metric.stemmer, "Compare Porter stems (ROUGE)");
  app.add_option("--word-order", flags->metric.chrf_word_order, "Word n-grams of chrF; 2 is chrF++")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
  app.add_option("--paired", flags->other, "File of another system's hypotheses, for paired tests of the difference");
  app.add_option("--resamples", flags->resampling.resamples, "Bootstrap resamples; ten times as many randomizations")
      ->check(CLI::Range(10, 1000000))
      ->capture_default_str();
  app.add_option("--seed", flags->resampling.seed, "Seed of the resampling")->capture_default_str();
  app.add_flag("--json", flags->json, "Print one JSON object with full precision");
  app.footer(
      "ROUGE is a number from 0 to 1, the mean over lines. For rougeLsum, a literal \\n or <n> separates\n"
      "the sentences of a line.\n"
      "Examples:\n"
      "  draftsmith score bleu --hyp out.txt --ref test.de\n"
      "  draftsmith score chrf --hyp out.txt --ref test.de --paired other.txt\n"
      "  draftsmith score rouge --hyp out.txt --ref summaries.txt --stemmer");
  return [flags] { return run_score(*flags); };
}

}  // namespace draftsmith::cli
