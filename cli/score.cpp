// `draftsmith score`: computes BLEU, chrF, TER or ROUGE of a file of hypotheses, with intervals and a paired test
// against a second system.

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/registry.h"
#include "cli/commands.h"
#include "cli/option_flags.h"
#include "data/text/readers.h"
#include "metrics/bleu_tokenizers.h"
#include "metrics/registry.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;
using metrics::Metric;
using metrics::NamedScore;
using metrics::PairedTest;
using nlohmann::ordered_json;

struct ScoreFlags {
  explicit ScoreFlags(CLI::App& app) : options(app, {}, {"name", "chrf_word_order"}) {}

  OptionFlags<metrics::MetricOptions> options;
  std::string metric;
  int64_t word_order = 0;
  metrics::ResamplingOptions resampling;
  fs::path hypotheses;
  std::vector<fs::path> references;
  fs::path other;  // hypotheses of a second system
  bool json = false;
};

std::vector<std::string> read_texts(const fs::path& file, const Metric& metric) {
  auto lines = data::read_lines(file);
  for (auto& line : lines) line = metric.text_of(line);
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

ordered_json test_json(const PairedTest& test) {
  return {{"difference", test.difference}, {"p_value", test.p_value}};
}

void print_json(const Metric& metric, const metrics::LineStatistics& statistics, const Report& report,
                const std::string& signature) {
  ordered_json json{{"metric", metric.name()}, {"lines", statistics.lines()}, {"signature", signature}};
  for (const auto& score : report.scores) {
    json[score.name] = score.value;
    json[score.name + "_ci95"] = interval_json(score.interval);
  }
  json.update(metric.details(statistics.sum()));
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
  fmt::print("{}", metric.text(statistics.sum(), signature));
  for (const auto& score : report.scores) {
    fmt::print("{0}: 95 % interval {1:.{3}f} to {2:.{3}f} ({4} bootstrap resamples of {5} lines)\n", score.name,
               score.interval.low, score.interval.high, metric.digits(), resamples, statistics.lines());
  }
  for (const auto& [score, tests] : report.tests) {
    fmt::print(
        "{}: difference {:+.4f} to the other system's {:.4f}, 95 % interval {:+.4f} to {:+.4f}, "
        "p = {:.4f} (paired bootstrap), p = {:.4f} (randomization)\n",
        score, tests.first.difference, tests.first.score_b, tests.first.difference_interval.low,
        tests.first.difference_interval.high, tests.first.p_value, tests.second.p_value);
  }
}

// Returns the metrics that score something.
std::vector<std::string> scoring_metrics() {
  std::vector<std::string> names = metrics::metric_names();
  std::erase(names, metrics::Unscored::kName);
  return names;
}

metrics::MetricOptions metric_options(const ScoreFlags& flags) {
  const std::vector<std::string> known = scoring_metrics();
  if (std::find(known.begin(), known.end(), flags.metric) == known.end()) {
    throw UserError(unknown_name("metric", flags.metric, known));
  }
  Problems problems;
  metrics::MetricOptions options = flags.options.value(problems);
  problems.throw_if_any();
  options.name = flags.metric;
  options.word_order = flags.word_order;
  if (!options.tokenize) {
    options.tokenize = metrics::default_bleu_tokenizer(metrics::language_of_references(flags.references.front()));
  }
  return options;
}

int run_score(const ScoreFlags& flags) {
  const auto made = metrics::make_metric(metric_options(flags));
  const Metric& metric = *made;
  const auto hypotheses = read_texts(flags.hypotheses, metric);
  if (hypotheses.empty()) {
    throw UserError({.where = flags.hypotheses.string(),
                     .what = "there is nothing to score",
                     .expected = "at least one line",
                     .found = "an empty file",
                     .hint = ""});
  }
  std::vector<std::vector<std::string>> streams;
  for (const auto& file : flags.references) {
    streams.push_back(read_texts(file, metric));
    require_same_lines(file, streams.back().size(), flags.hypotheses, hypotheses.size());
  }
  const metrics::References references = metrics::references_from_streams(streams);
  const metrics::LineStatistics statistics = metric.statistics(hypotheses, references);
  Report report;
  report.scores = metrics::all_scores(metric, statistics, flags.resampling);
  if (!flags.other.empty()) {
    const auto other = read_texts(flags.other, metric);
    require_same_lines(flags.other, other.size(), flags.hypotheses, hypotheses.size());
    const auto other_statistics = metric.statistics(other, references);
    auto trials = flags.resampling;
    trials.resamples *= 10;
    const auto names = metric.scores();
    for (size_t which = 0; which < names.size(); ++which) {
      const auto score = metric.function(which);
      report.tests.push_back({names[which],
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
  auto flags = std::make_shared<ScoreFlags>(app);
  app.add_option("metric", flags->metric, fmt::format("{}", fmt::join(scoring_metrics(), ", ")))->required();
  app.add_option("--hyp", flags->hypotheses, "File of hypotheses, one a line")->required();
  app.add_option("--ref", flags->references, "File of references, one a line; several files are several references")
      ->required();
  app.add_option("--word-order", flags->word_order, "Word n-grams of chrF; 2 is chrF++")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
  app.add_option("--paired", flags->other, "File of another system's hypotheses, for paired tests of the difference");
  app.add_option("--resamples", flags->resampling.resamples, "Bootstrap resamples; ten times as many randomizations")
      ->check(CLI::Range(10, 1000000))
      ->capture_default_str();
  app.add_option("--seed", flags->resampling.seed, "Seed of the resampling")->capture_default_str();
  app.add_flag("--json", flags->json, "Print one JSON object with full precision");
  app.footer(
      "BLEU and TER are sacreBLEU's. --tokenize ja-mecab and ko-mecab need MeCab and a dictionary, flores101 and\n"
      "flores200 a model in ~/.sacrebleu/models. TER is an error rate: lower is better.\n"
      "ROUGE is a number from 0 to 1, the mean over lines. For rougeLsum, a literal \\n or <n> separates\n"
      "the sentences of a line.\n"
      "Examples:\n"
      "  draftsmith score bleu --hyp out.txt --ref test.de\n"
      "  draftsmith score bleu --hyp out.txt --ref test.zh --tokenize zh\n"
      "  draftsmith score ter --hyp out.txt --ref test.de\n"
      "  draftsmith score chrf --hyp out.txt --ref test.de --paired other.txt\n"
      "  draftsmith score rouge --hyp out.txt --ref summaries.txt --stemmer");
  return [flags] { return run_score(*flags); };
}

}  // namespace draftsmith::cli
