// `draftsmith score`: computes BLEU, chrF, ROUGE or a command's measure of a file of hypotheses, with intervals and a
// paired test against a second system.

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/logging.h"
#include "base/signals.h"
#include "cli/application.h"
#include "data/text/readers.h"
#include "metrics/metric.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;
using metrics::Metric;

struct ScoreFlags {
  explicit ScoreFlags(CLI::App& app) : options(app, {}, {"name", "chrf_word_order"}) {}

  OptionFlags<metrics::MetricOptions> options;
  std::string metric;
  int64_t word_order = 0;
  metrics::ResamplingOptions resampling;
  fs::path hypotheses;
  std::vector<fs::path> references;
  fs::path sources;
  fs::path other;  // hypotheses of a second system
  bool json = false;
};

void print_text(const Metric& metric, const metrics::ScoreReport& report, int64_t resamples) {
  fmt::print("{}", metric.text(report.sums, report.signature));
  for (const auto& score : report.scores) {
    if (report.lines < 2) break;  // no interval
    fmt::print("{0}: 95 % interval {1:.{3}f} to {2:.{3}f} ({4} bootstrap resamples of {5} lines)\n", score.name,
               score.interval.low, score.interval.high, metric.digits(), resamples, report.lines);
  }
  for (const auto& [score, test] : report.compared) {
    fmt::print("{}: difference {:+.4f} to the other system's {:.4f}", score, test.difference, test.score_b);
    if (report.lines < 2) {
      fmt::print("\n");
      continue;
    }
    fmt::print(", 95 % interval {:+.4f} to {:+.4f}, p = {:.4f} (paired bootstrap)\n", test.difference_interval.low,
               test.difference_interval.high, test.p_value);
  }
}

metrics::MetricOptions metric_options(const ScoreFlags& flags) {
  metrics::require_scoring_metric(flags.metric);
  metrics::MetricOptions named;
  named.name = flags.metric;
  named.chrf_word_order = flags.word_order;
  metrics::MetricOptions options = flags.options.value_over(named);
  if (options.name != "command" && !options.command.empty()) {
    throw UserError({"--command", "only the metric command runs one", "draftsmith score command", flags.metric, ""});
  }
  if (!options.tokenize && options.name == "bleu") {
    options.tokenize = metrics::default_bleu_tokenizer(metrics::language_of_references(flags.references.front()));
  }
  return options;
}

// Reads all files. Errors: UserError if there is nothing to score or a file has other lines.
metrics::ScoredTexts read_texts(const ScoreFlags& flags) {
  metrics::ScoredTexts texts;
  texts.hypotheses = data::read_lines(flags.hypotheses);
  if (texts.hypotheses.empty()) {
    throw UserError({.where = flags.hypotheses.string(),
                     .what = "there is nothing to score",
                     .expected = "at least one line",
                     .found = "an empty file",
                     .hint = ""});
  }
  const auto read = [&](const fs::path& file) {
    std::vector<std::string> lines = data::read_lines(file);
    if (lines.size() == texts.hypotheses.size()) return lines;
    throw UserError(other_line_count(file.string(), "the files differ in their number of lines", lines.size(),
                                     texts.hypotheses.size(), flags.hypotheses.string(),
                                     "each line is compared with the same line of the other files"));
  };
  for (const auto& file : flags.references) texts.references.push_back(read(file));
  if (!flags.sources.empty()) texts.sources = read(flags.sources);
  if (!flags.other.empty()) texts.other_system = read(flags.other);
  return texts;
}

int run_score(const ScoreFlags& flags) {
  const auto made = metrics::make_metric(metric_options(flags));
  std::optional<SignalWatch> signals;  // so that Ctrl-C ends a command, too
  if (flags.metric == "command") signals.emplace();
  const Metric& metric = *made;
  const metrics::ScoreReport report = metrics::score_texts(metric, read_texts(flags), flags.resampling);
  if (!report.warning.empty()) log_warning("{}", report.warning);
  if (flags.json) {
    std::cout << metrics::to_json(metric, report).dump(2) << "\n";
  } else {
    print_text(metric, report, flags.resampling.resamples);
  }
  return 0;
}

}  // namespace

Action add_score(CLI::App& app) {
  auto flags = std::make_shared<ScoreFlags>(app);
  app.add_option("metric", flags->metric, fmt::format("{}", fmt::join(metrics::scoring_metrics(), ", ")))->required();
  app.add_option("--hyp", flags->hypotheses, "File of hypotheses, one a line")->required();
  app.add_option("--ref", flags->references, "File of references, one a line; several files are several references")
      ->required();
  app.add_option("--source", flags->sources, "File of sources, one a line, which only a command may read");
  app.add_option("--word-order", flags->word_order, "Word n-grams of chrF; 2 is chrF++")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
  app.add_option("--paired", flags->other, "File of another system's hypotheses, for a paired test of the difference");
  app.add_option("--resamples", flags->resampling.resamples, "Bootstrap resamples")
      ->check(CLI::Range(10, 1000000))
      ->capture_default_str();
  app.add_option("--seed", flags->resampling.seed, "Seed of the resampling")->capture_default_str();
  app.add_flag("--json", flags->json, "Print one JSON object with full precision");
  app.footer(
      "BLEU and chrF are sacreBLEU's, ROUGE is a number from 0 to 1, the mean over lines. For rougeLsum,\n"
      "a literal \\n or <n> separates the sentences of a line. docs/reference/metrics.md shows a command for\n"
      "sacreBLEU's TER and for BLEU by its other tokenizers.\n"
      "Examples:\n"
      "  draftsmith score bleu --hyp out.txt --ref test.de\n"
      "  draftsmith score bleu --hyp out.txt --ref test.zh --tokenize zh\n"
      "  draftsmith score chrf --hyp out.txt --ref test.de --paired other.txt\n"
      "  draftsmith score rouge --hyp out.txt --ref summaries.txt --stemmer\n"
      "  draftsmith score command --command 'python3 comet.py' --input jsonl --source test.en \\\n"
      "    --hyp out.txt --ref test.de");
  return [flags] { return run_score(*flags); };
}

}  // namespace draftsmith::cli
