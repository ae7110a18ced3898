// Metrics: per-line statistics, scores of their sums, and how scores are written; the metrics by name, with the options
// of all of them.
//
// bleu: corpus BLEU (Papineni et al. 2002) as sacreBLEU 2.6 computes it: n-grams up to 4, exponential smoothing,
//   effective order off, closest reference length, case kept.
// chrf: corpus chrF and chrF++ (Popović 2015, 2017) as sacreBLEU 2.6 computes them: character n-grams up to 6 without
//   white space, optionally word n-grams up to 2, F-beta with beta 2, averaged over the orders that both sides have.
// rouge: ROUGE-1, -2, -L and -Lsum (Lin 2004) as Google's rouge_score 0.1.2 computes them: lower case, tokens
//   [a-z0-9]+, F1, union LCS for Lsum with sentences separated by newlines; the mean over lines, 0..1. With several
//   references, each type uses the one with the highest F1 on the line (rouge_score's score_multi).
// command: the mean of what a program outside of Draftsmith answers for each line.
// none: for tasks without references, whose speed alone is measured.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/options.h"
#include "metrics/resampling.h"
#include "metrics/text.h"

namespace draftsmith::metrics {

// Lines of a corpus with all that a metric may read.
struct Segments {
  std::span<const std::string> hypotheses;
  const References& references;               // as many
  std::span<const std::string> sources = {};  // as users write them; empty: unknown
};

// Scores hypotheses against references.
class Metric {
 public:
  virtual ~Metric() = default;

  // Returns the metric's name, as options give it: "rouge".
  virtual std::string name() const = 0;
  // Returns the names of its scores, the leading one first: {"bleu"} or {"rougeL", "rouge1", ...}; empty if nothing is
  // scored.
  virtual std::vector<std::string> scores() const = 0;
  // Returns the name of the leading score; empty if nothing is scored.
  std::string leading_score() const { return scores().empty() ? "" : scores().front(); }
  // Returns the size of "one point" of its scores: 1 on a scale of 100, 0.01 on a scale of 1.
  virtual double point() const { return 1; }
  // Returns whether a lower score is the better one, as of error rates.
  virtual bool lower_is_better() const { return false; }
  // Returns how much worse `to` is than `from`, in the score's own unit; negative: better.
  double loss(double from, double to) const { return lower_is_better() ? to - from : from - to; }
  // Returns how many digits a shown score has behind the decimal point.
  int digits() const { return point() < 1 ? 4 : 2; }

  // Returns the sufficient statistics of each line. Throws std::logic_error when the numbers of lines differ or a line
  // has no reference; RunError for a command that fails, hangs, or answers with another number of lines or with
  // something else than finite numbers.
  virtual LineStatistics statistics(const Segments& segments) const = 0;
  // Returns the score scores()[which] of summed statistics.
  virtual double score(std::span<const double> sums, size_t which) const = 0;
  // Returns a score as a function of summed statistics; the metric must outlive it.
  ScoreFunction function(size_t which = 0) const;
  // Returns what was compared and how, in sacreBLEU's form with our version: "nrefs:1|case:mixed|...".
  virtual std::string signature(const References& references) const = 0;

  // Returns what a reader of the scores must know of these texts; empty: nothing.
  virtual std::string warning(const Segments& /*segments*/) const { return ""; }

  // Returns the scores as `draftsmith score` prints them, one or more lines.
  virtual std::string text(std::span<const double> sums, const std::string& signature) const = 0;
  // Returns further values of the summed statistics, for `draftsmith score --json`.
  virtual nlohmann::ordered_json details(std::span<const double> sums) const;

  // Returns a text as one line of a file of hypotheses. By default newlines become blanks, which scores alike.
  virtual std::string line_of(const std::string& text) const;
  // Returns the text to be scored of such a line, or of a line of references.
  virtual std::string text_of(const std::string& line) const { return line; }
};

// ---- Options

// Options of the metric `command`.
struct CommandOptions {
  std::string command = {};  // for /bin/sh
  std::string label = {};    // name of the score; empty: that of the program
  std::string input = "tsv";
  double point = 1;
  bool lower_is_better = false;
  double timeout = 600;  // seconds; 0: none
};

// The name of a metric and the options of all metrics; each metric reads its own.
struct MetricOptions : CommandOptions {
  std::string name = "bleu";
  std::optional<std::string> tokenize;  // of bleu; absent: that of the references' language, else 13a
  bool stemmer = false;                 // of rouge
  int64_t chrf_word_order = 0;          // 0: chrF; 2: chrF++; 0..2

  // Returns the name of the metric that the options ask for: a command needs no name beside it.
  std::string kind() const { return command.empty() ? name : "command"; }
  bool runs_command() const { return kind() == "command"; }
  // Returns whether the metric scores anything.
  bool scored() const { return kind() != "none"; }

  static Fields<MetricOptions> fields();
};

// Returns why a command's score cannot have this name; empty if it can.
std::string defect_of_label(const std::string& label);

// Returns the name of the score of such options: the label, or the name of the command's program.
std::string command_label(const CommandOptions& options);

// Returns the name of BLEU's tokenizer for texts in a language: zh for "zh", char for "ja", whose words no blanks
// separate, else 13a, also for an unknown language, "".
std::string default_bleu_tokenizer(const std::string& language);

// Returns the language that a file of references is named for, or "": "zh" of "test.zh" and of sacreBLEU's
// "wmt20.en-zh.ref" and "wmt20.en-zh.ref-A".
std::string language_of_references(const std::filesystem::path& file);

// ---- Metrics by name

// Returns the metric that `options` name. Errors: UserError for an unknown name or tokenizer.
std::unique_ptr<const Metric> make_metric(const MetricOptions& options);

// What each metric's own file has for make_metric(). To add a metric: a file, a line here, and one in metric.cpp.
std::unique_ptr<const Metric> make_bleu(const MetricOptions& options);
std::unique_ptr<const Metric> make_chrf(const MetricOptions& options);
std::unique_ptr<const Metric> make_rouge(const MetricOptions& options);
std::unique_ptr<const Metric> make_command(const MetricOptions& options);

// ---- Scores of texts: the work of `draftsmith score`

struct NamedScore {
  std::string name;
  double value = 0;
  Interval interval;  // bootstrap over lines
};

// Returns every score of the metric with its interval.
std::vector<NamedScore> all_scores(const Metric& metric, const LineStatistics& statistics,
                                   const ResamplingOptions& options = {});

// Texts of equally many lines.
struct ScoredTexts {
  std::vector<std::string> hypotheses;
  std::vector<std::vector<std::string>> references;        // [reference][line]
  std::vector<std::string> sources{};                      // as users write them; empty: unknown
  std::optional<std::vector<std::string>> other_system{};  // hypotheses of a second system
};

// A score's difference to the second system.
struct ComparedScore {
  std::string score;
  PairedTest bootstrap;
};

struct ScoreReport {
  std::string signature;
  int64_t lines = 0;
  std::vector<double> sums;  // statistics over all lines
  std::vector<NamedScore> scores;
  std::vector<ComparedScore> compared;  // empty without a second system
  std::string warning{};                // Metric::warning() of the system's texts
};

// Returns the names of the metrics that score something.
std::vector<std::string> scoring_metrics();

// Throws UserError unless `name` is one of scoring_metrics().
void require_scoring_metric(const std::string& name);

// Scores texts whose lines are at least one. Errors: std::logic_error if the numbers of lines differ.
ScoreReport score_texts(const Metric& metric, const ScoredTexts& texts, const ResamplingOptions& resampling);

// Returns the report as `draftsmith score --json` prints it.
nlohmann::ordered_json to_json(const Metric& metric, const ScoreReport& report);

// ---- Parts of metrics, for their tests

// Returns the names of BLEU's tokenizers, as sacreBLEU 2.6 names them: "13a", "none", "char" and "zh".
std::vector<std::string> bleu_tokenizer_names();

// Returns the tokens of one segment that BLEU counts. Errors: UserError for an unknown tokenizer.
std::vector<std::string> bleu_tokens(std::string_view text, const std::string& tokenizer);

// Returns the stem of a lower-case ASCII word by Porter's stemmer (1980) with the extensions that NLTK's PorterStemmer
// applies by default: ROUGE as rouge_score computes it is defined through exactly this variant (libstemmer's "porter"
// differs on about 1.6 % of word types). Words of one or two letters do not change.
std::string porter_stem(std::string_view word);

// Returns what a command reads, one line a segment.
//   tsv: hypothesis TAB reference [TAB reference ...], with blanks for tabs and newlines in them
//   jsonl: {"source": ..., "hypothesis": ..., "references": [...]}; no source if none is known
std::string command_input(const Segments& segments, const std::string& form);

// Returns the number of references per line for signatures: "1", or "var" if it varies.
std::string reference_count(const References& references);

// The version in signatures, which differs from any version of sacreBLEU.
inline constexpr std::string_view kMetricsVersion = "draftsmith-0.1.0";

}  // namespace draftsmith::metrics
