#include "metrics/scoring.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/registry.h"

namespace draftsmith::metrics {
namespace {

using Made = std::unique_ptr<const Metric>;

struct Kind {
  std::string name;
  Made (*make)(const MetricOptions&);
};

template <class... Metrics>
Registry<Kind> kinds_of(const OptionsOf<Metrics...>&) {
  return {
      "metric",
      {{Metrics::kName, [](const MetricOptions& options) -> Made { return std::make_unique<Metrics>(options); }}...}};
}

const Registry<Kind>& kinds() {
  static const Registry<Kind> kKinds = kinds_of(MetricOptions());
  return kKinds;
}

}  // namespace

void check_command(const std::string& name, const std::string& command, const std::string& where, Problems& problems) {
  const std::string at = where.empty() ? "command" : where + ".command";
  const bool blank = command.find_first_not_of(" \t\n") == std::string::npos;
  if (blank && (name == Command::kName || !command.empty())) {
    problems.add({at, "the metric needs a command", "a command of /bin/sh", "none",
                  "metric = { command = \"python3 score.py\" }"});
  } else if (!blank && name != Command::kName && name != MetricOptions().name) {
    problems.add({at, "only the metric command runs one", "command alone, or another metric",
                  "name = \"" + name + "\" and a command", ""});
  }
}

std::unique_ptr<const Metric> make_metric(const MetricOptions& options) {
  return kinds().at(options.kind()).make(options);
}

std::unique_ptr<const Metric> make_metric(const std::string& name) {
  MetricOptions options;
  options.name = name;
  return make_metric(options);
}

std::vector<std::string> metric_names() {
  return kinds().names();
}

namespace {

using nlohmann::ordered_json;

std::vector<std::string> scored_lines(const Metric& metric, std::vector<std::string> lines) {
  for (std::string& line : lines) line = metric.text_of(line);
  return lines;
}

std::vector<ComparedScore> compare_systems(const Metric& metric, const LineStatistics& ours,
                                           const LineStatistics& others, const ResamplingOptions& resampling) {
  ResamplingOptions trials = resampling;
  trials.resamples *= 10;
  std::vector<ComparedScore> compared;
  const std::vector<std::string> names = metric.scores();
  for (size_t which = 0; which < names.size(); ++which) {
    const ScoreFunction score = metric.function(which);
    compared.push_back({names[which], paired_bootstrap(ours, others, score, resampling),
                        paired_randomization(ours, others, score, trials)});
  }
  return compared;
}

ordered_json interval_json(const Interval& interval) {
  return {interval.low, interval.high};
}

ordered_json test_json(const PairedTest& test) {
  return {{"difference", test.difference}, {"p_value", test.p_value}};
}

}  // namespace

std::vector<std::string> scoring_metrics() {
  std::vector<std::string> names = metric_names();
  std::erase(names, Unscored::kName);
  return names;
}

void require_scoring_metric(const std::string& name) {
  const std::vector<std::string> known = scoring_metrics();
  if (std::find(known.begin(), known.end(), name) == known.end()) throw UserError(unknown_name("metric", name, known));
}

ScoreReport score_texts(const Metric& metric, const ScoredTexts& texts, const ResamplingOptions& resampling) {
  std::vector<std::vector<std::string>> streams;
  for (const auto& stream : texts.references) streams.push_back(scored_lines(metric, stream));
  const References references = references_from_streams(streams);
  const auto statistics_of = [&](const std::vector<std::string>& hypotheses) {
    const std::vector<std::string> lines = scored_lines(metric, hypotheses);
    return metric.segment_statistics({.hypotheses = lines, .references = references, .sources = texts.sources});
  };
  const LineStatistics statistics = statistics_of(texts.hypotheses);
  ScoreReport report{.metric = metric.name(),
                     .signature = metric.signature(references),
                     .lines = statistics.lines(),
                     .sums = statistics.sum(),
                     .scores = all_scores(metric, statistics, resampling),
                     .compared = {}};
  if (texts.other_system) {
    report.compared = compare_systems(metric, statistics, statistics_of(*texts.other_system), resampling);
  }
  return report;
}

ordered_json to_json(const Metric& metric, const ScoreReport& report) {
  ordered_json json{{"metric", report.metric}, {"lines", report.lines}, {"signature", report.signature}};
  for (const NamedScore& score : report.scores) {
    json[score.name] = score.value;
    json[score.name + "_ci95"] = interval_json(score.interval);
  }
  json.update(metric.details(report.sums));
  for (const ComparedScore& compared : report.compared) {
    auto& entry = json["compared"][compared.score];
    entry["other"] = compared.bootstrap.score_b;
    entry["bootstrap"] = test_json(compared.bootstrap);
    entry["bootstrap"]["difference_ci95"] = interval_json(compared.bootstrap.difference_interval);
    entry["randomization"] = test_json(compared.randomization);
  }
  return json;
}

}  // namespace draftsmith::metrics
