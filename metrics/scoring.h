// The work of `draftsmith score`: scores of a system's texts with intervals, and a paired test against a second system.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "metrics/metric.h"
#include "metrics/resampling.h"

namespace draftsmith::metrics {

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

}  // namespace draftsmith::metrics
