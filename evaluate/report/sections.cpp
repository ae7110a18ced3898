#include "evaluate/report/sections.h"

#include <cmath>

#include <fmt/format.h>

#include "base/json.h"
#include "metrics/registry.h"

namespace draftsmith::evaluate {

const std::vector<Section>& sections() {
  static const std::vector<Section> kAll{quality_speedup_section(),
                                         settings_section(),
                                         categories_section(),
                                         predicted_speed_section(),
                                         windows_section(),
                                         prediction_quality_section(),
                                         quality_latency_section(),
                                         latency_section(),
                                         work_section(),
                                         phases_section(),
                                         acceptance_positions_section(),
                                         accepted_lengths_section(),
                                         inside_section(),
                                         match_rates_section(),
                                         engagement_section(),
                                         examples_section(),
                                         training_section(),
                                         checks_section()};
  return kAll;
}

ScoreStyle score_style(const TaskResult& task) {
  const auto metric = metrics::make_metric(task.metric_options());
  return {.name = metric->leading_score(),
          .digits = metric->digits(),
          .point = metric->point(),
          .lower_is_better = metric->lower_is_better()};
}

PlotLevel one_point_worse(double quality, const ScoreStyle& style) {
  if (style.lower_is_better) return {quality + style.point, "one point more"};
  return {quality - style.point, "one point less"};
}

std::string score_words(const std::string& score) {
  if (score == "bleu") return "BLEU";
  if (score.starts_with("chrf")) return "chrF" + score.substr(4);
  return score.starts_with("rouge") ? "ROUGE-" + score.substr(5) : score;
}

nlohmann::ordered_json csv_number(const std::optional<double>& value) {
  return value ? finite_or_null(*value) : nlohmann::ordered_json();
}

std::string fixed(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "";
}

std::string fixed(const std::optional<double>& value, int digits) {
  return value ? fixed(*value, digits) : "";
}

}  // namespace draftsmith::evaluate
