// The interface of a metric: per-line statistics, scores of their sums, and how scores are written. The metric `none`,
// which scores nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/options.h"
#include "metrics/resampling.h"
#include "metrics/text.h"

namespace draftsmith::metrics {

// Lines of a corpus with all that a metric may read.
struct Segments {
  std::span<const std::string> hypotheses;
  const References& references;
  std::span<const std::string> sources;  // as users write them; empty: unknown
};

// Scores hypotheses against references. metrics/scoring.h makes one from its options.
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

  // Returns the sufficient statistics of each line. Throws std::logic_error when the numbers of lines differ.
  virtual LineStatistics statistics(const std::vector<std::string>& hypotheses, const References& references) const = 0;
  // Returns the same for metrics that read sources, too. By default these are ignored.
  virtual LineStatistics segment_statistics(const Segments& segments) const {
    return statistics({segments.hypotheses.begin(), segments.hypotheses.end()}, segments.references);
  }
  // Returns the score scores()[which] of summed statistics.
  virtual double score(std::span<const double> sums, size_t which) const = 0;
  // Returns a score as a function of summed statistics; the metric must outlive it.
  ScoreFunction function(size_t which = 0) const;
  // Returns what was compared and how, in sacreBLEU's form: "nrefs:1|case:mixed|...".
  virtual std::string signature(const References& references) const = 0;

  // Returns the scores as `draftsmith score` prints them, one or more lines.
  virtual std::string text(std::span<const double> sums, const std::string& signature) const = 0;
  // Returns further values of the summed statistics, for `draftsmith score --json`.
  virtual nlohmann::ordered_json details(std::span<const double> /*sums*/) const {
    return nlohmann::ordered_json::object();
  }

  // Returns a text as one line of a file of hypotheses. By default newlines become blanks, which scores alike.
  virtual std::string line_of(const std::string& text) const;
  // Returns the text to be scored of such a line, or of a line of references.
  virtual std::string text_of(const std::string& line) const { return line; }
};

struct NamedScore {
  std::string name;
  double value = 0;
  Interval interval;  // bootstrap over lines
};

// Returns every score of the metric with its interval.
std::vector<NamedScore> all_scores(const Metric& metric, const LineStatistics& statistics,
                                   const ResamplingOptions& options = {});

// ---- The metric `none`
// For tasks without references: only speed is measured.

struct UnscoredOptions {
  static Fields<UnscoredOptions> fields() { return Fields<UnscoredOptions>("no metric"); }
};

class Unscored : public Metric {
 public:
  using Options = UnscoredOptions;
  static constexpr const char* kName = "none";
  explicit Unscored(const Options& /*options*/) {}

  std::string name() const override { return kName; }
  std::vector<std::string> scores() const override { return {}; }
  LineStatistics statistics(const std::vector<std::string>& /*hypotheses*/,
                            const References& /*references*/) const override {
    return {};
  }
  double score(std::span<const double> /*sums*/, size_t /*which*/) const override { return 0; }
  std::string signature(const References& /*references*/) const override { return "no references: nothing is scored"; }
  std::string text(std::span<const double> /*sums*/, const std::string& signature) const override {
    return signature + "\n";
  }
};

}  // namespace draftsmith::metrics
