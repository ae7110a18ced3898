#include "metrics/scoring.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace draftsmith::metrics {
namespace {

using nlohmann::ordered_json;

std::vector<std::string> scored_lines(const Metric& metric, std::vector<std::string> lines) {
  for (std::string& line : lines) line = metric.text_of(line);
  return lines;
}

std::vector<ComparedScore> compare_systems(const Metric& metric, const LineStatistics& ours,
                                           const LineStatistics& others, const ResamplingOptions& resampling) {
  std::vector<ComparedScore> compared;
  const std::vector<std::string> names = metric.scores();
  for (size_t which = 0; which < names.size(); ++which) {
    compared.push_back({names[which], paired_bootstrap(ours, others, metric.function(which), resampling)});
  }
  return compared;
}

ordered_json interval_json(const Interval& interval) {
  return {interval.low, interval.high};
}

}  // namespace

std::vector<NamedScore> all_scores(const Metric& metric, const LineStatistics& statistics,
                                   const ResamplingOptions& options) {
  std::vector<NamedScore> scores;
  const auto sums = statistics.sum();
  for (const std::string& name : metric.scores()) {
    const size_t which = scores.size();
    scores.push_back(
        {name, metric.score(sums, which), bootstrap_interval(statistics, metric.function(which), options)});
  }
  return scores;
}

std::vector<std::string> scoring_metrics() {
  std::vector<std::string> names = metric_names();
  std::erase(names, "none");
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
    return metric.statistics({.hypotheses = lines, .references = references, .sources = texts.sources});
  };
  const LineStatistics statistics = statistics_of(texts.hypotheses);
  ScoreReport report{.signature = metric.signature(references),
                     .lines = statistics.lines(),
                     .sums = statistics.sum(),
                     .scores = all_scores(metric, statistics, resampling),
                     .compared = {}};
  const std::vector<std::string> own = scored_lines(metric, texts.hypotheses);
  report.warning = metric.warning({.hypotheses = own, .references = references});
  if (texts.other_system) {
    report.compared = compare_systems(metric, statistics, statistics_of(*texts.other_system), resampling);
  }
  return report;
}

ordered_json to_json(const Metric& metric, const ScoreReport& report) {
  ordered_json json{{"metric", metric.name()}, {"lines", report.lines}, {"signature", report.signature}};
  if (!report.warning.empty()) json["warning"] = report.warning;
  for (const NamedScore& score : report.scores) {
    json[score.name] = score.value;
    json[score.name + "_ci95"] = interval_json(score.interval);
  }
  json.update(metric.details(report.sums));
  for (const ComparedScore& compared : report.compared) {
    auto& entry = json["compared"][compared.score];
    entry["other"] = compared.bootstrap.score_b;
    entry["bootstrap"] = {{"difference", compared.bootstrap.difference},
                          {"p_value", compared.bootstrap.p_value},
                          {"difference_ci95", interval_json(compared.bootstrap.difference_interval)}};
  }
  return json;
}

}  // namespace draftsmith::metrics
