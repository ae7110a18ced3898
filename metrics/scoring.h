// The metrics by name with their options, and the work of `draftsmith score`: scores of a system's texts with
// intervals, and paired tests against a second system.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/options.h"
#include "metrics/bleu.h"
#include "metrics/chrf.h"
#include "metrics/command.h"
#include "metrics/metric.h"
#include "metrics/rouge.h"

namespace draftsmith::metrics {

// ---- Metrics by name
// A new metric is a class in files of its own, with its options, and a word in `MetricOptions` below.

// Adds a problem if the metric's name and its command do not belong together.
void check_command(const std::string& name, const std::string& command, const std::string& where, Problems& problems);

// The name of a metric and the options of all metrics; each metric reads its own.
template <class... Metrics>
struct OptionsOf : Metrics::Options... {
  std::string name = Bleu::kName;

  // Returns the name of the metric that the options ask for: a command needs no name beside it.
  std::string kind() const { return this->command.empty() ? name : Command::kName; }
  // Returns whether the metric scores anything.
  bool scored() const { return kind() != Unscored::kName; }

  static Fields<OptionsOf> fields() {
    Fields<OptionsOf> fields("metric options");
    fields.add("name", &OptionsOf::name, Choices{Metrics::kName...},
               "Metric of the task; none: the task has no references and measures speed only.");
    (fields.template inherit<typename Metrics::Options>(), ...);
    return fields.check([](const OptionsOf& options, const std::string& where, Problems& problems) {
      check_command(options.name, options.command, where, problems);
    });
  }
};
using MetricOptions = OptionsOf<Bleu, Rouge, Chrf, Unscored, Command>;

// Returns the metric that `options` name. Errors: UserError for an unknown name or tokenizer.
std::unique_ptr<const Metric> make_metric(const MetricOptions& options);

// Returns the metric of that name with its default options. Errors: UserError for an unknown name.
std::unique_ptr<const Metric> make_metric(const std::string& name);

// Returns the names of all metrics.
std::vector<std::string> metric_names();

// ---- Scores of a system's texts

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
  PairedTest randomization;  // with ten times as many resamples
};

struct ScoreReport {
  std::string metric;
  std::string signature;
  int64_t lines = 0;
  std::vector<double> sums;  // statistics over all lines
  std::vector<NamedScore> scores;
  std::vector<ComparedScore> compared;  // empty without a second system
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
