// Engagement curves (infer/engagement.h): quality against the share of tokens that the large model decides, as in
// BiLD's figure 2 (Kim et al. 2023).
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/files.h"
#include "base/plots.h"
#include "base/util.h"
#include "evaluate/report/report.h"
#include "evaluate/report/sections.h"
#include "evaluate/suite/setting_grid.h"

namespace draftsmith::evaluate {
namespace {

// Returns the name of the leading score; empty if nothing is scored.
std::string leading(const EngagementResult& curve) {
  return curve.large.scores.empty() ? "" : curve.large.scores.front().name;
}

std::string percent(const std::optional<double>& share) {
  return share && std::isfinite(*share) ? fmt::format("{:.1f}", 100 * *share) : "";
}

PlotPoint mark_of(const EngagementPoint& point, const std::string& score) {
  const metrics::NamedScore& quality = *point.quality.find(score);
  PlotPoint mark{.x = 100 * point.engaged_share(),
                 .y = quality.value,
                 .title = fmt::format("{} at {:g}: {} % of the tokens, {} {:.4g}", point.policy, point.threshold,
                                      percent(point.engaged_share()), score_words(score), quality.value),
                 .label = fmt::format("{:g}", point.threshold)};
  if (const auto& difference = point.quality.difference) {
    const double large = quality.value - difference->value;
    mark.y_interval = {large + difference->interval.low, large + difference->interval.high};
  }
  return mark;
}

// Returns the curve of each policy, and a line at the quality of the large model alone.
Plot curve_plot(const EngagementResult& curve) {
  const std::string score = leading(curve);
  Plot plot{.label = "quality against the large model's share of the tokens, small model " + curve.drafter,
            .x_title = "tokens that the large model decides, %",
            .y_title = score_words(score),
            .series = {},
            .levels = {{curve.large.scores.front().value, "the large model alone"}}};
  std::vector<std::string> policies;
  for (const EngagementPoint& point : curve.points) add_new(policies, point.policy);
  for (const std::string& policy : policies) {
    PlotSeries series{.name = policy, .style = series_style(plot.series.size())};
    for (const EngagementPoint& point : curve.points) {
      if (point.policy == policy) series.marks.push_back(mark_of(point, score));
    }
    series.line = series.marks;
    std::ranges::stable_sort(series.line, {}, &PlotPoint::x);
    series.line_title = policy;
    plot.series.push_back(std::move(series));
  }
  return plot;
}

Table curve_table(const EngagementResult& curve, int digits) {
  const std::string score = leading(curve);
  Table table({{"policy", Align::kLeft},
               {"threshold"},
               {"large %", Align::kRight, "share of tokens that the large model decides"},
               {"changed %", Align::kRight, "share of tokens where its choice differs from the small model's"},
               {score_words(score)},
               {"difference", Align::kRight, "from the large model alone, with a paired 95 % interval"}});
  for (const EngagementPoint& point : curve.points) {
    const auto& difference = point.quality.difference;
    table.add_row({point.policy, fmt::format("{:g}", point.threshold), percent(point.engaged_share()),
                   percent(point.changed_share()), fixed(point.quality.find(score)->value, digits),
                   difference ? fmt::format("{:+.{}f} [{:+.{}f}, {:+.{}f}]", difference->value, digits,
                                            difference->interval.low, digits, difference->interval.high, digits)
                              : ""});
  }
  table.drop_empty_columns();
  return table;
}

constexpr const char* kEngagementMeaning =
    "The oracle runs both models for every token and lets the large one decide where it gives the small model's token "
    "a probability below the threshold. It bounds rules that do not know that probability, and saves no time itself. "
    "With fallback the large model decides where the small model's largest probability is below the threshold; nothing "
    "is rolled back.";

std::string curve_heading(const EngagementResult& curve) {
  return fmt::format("engagement of the large model{}: small model {}, {} lines of {}",
                     curve.name.empty() ? "" : ", " + curve.name, curve.drafter, curve.lines, curve.task);
}

std::vector<Part> engagement_parts(const TaskView& view, Form form) {
  std::vector<Part> parts;
  const ScoreStyle style = score_style(view.task);
  for (const EngagementResult& curve : view.results.engagement) {
    if (curve.task != view.task.name || leading(curve).empty()) continue;
    const bool full = form == Form::kFull;
    Part part{.caption = curve_heading(curve),
              .table = curve_table(curve, style.digits),
              .notes = {fmt::format("{}the large model alone: {} {}", full ? "" : "  ", score_words(leading(curve)),
                                    fixed(curve.large.scores.front().value, style.digits))}};
    if (full) {
      part.notes.emplace_back(kEngagementMeaning);
      part.figures = {figure_of(curve_plot(curve),
                                "Quality by how many tokens the large model decides. Marks have their "
                                "thresholds; whiskers are those of the difference from the large "
                                "model alone.")};
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

// Returns all points with all scores, a line for each.
Table points_table(const EngagementResult& curve) {
  std::vector<Column> columns{{"policy"}, {"threshold"}, {"tokens"}, {"engaged"}, {"changed"}, {"engaged_share"}};
  for (const auto& score : curve.large.scores) columns.push_back({score.name});
  for (const char* column : {"difference", "difference_low", "difference_high", "p_value"}) columns.push_back({column});
  Table table(std::move(columns));
  for (const EngagementPoint& point : curve.points) {
    std::vector<std::string> cells{point.policy,
                                   fmt::format("{}", point.threshold),
                                   std::to_string(point.tokens),
                                   std::to_string(point.engaged),
                                   point.changed ? std::to_string(*point.changed) : "",
                                   fixed(point.engaged_share(), 6)};
    for (const auto& score : point.quality.scores) cells.push_back(fixed(score.value, 6));
    const auto& difference = point.quality.difference;
    for (const auto& value : {difference ? std::optional(difference->value) : std::nullopt,
                              difference ? std::optional(difference->interval.low) : std::nullopt,
                              difference ? std::optional(difference->interval.high) : std::nullopt,
                              difference ? std::optional(difference->p_value) : std::nullopt}) {
      cells.push_back(fixed(value, 6));
    }
    table.add_row(std::move(cells));
  }
  return table;
}

}  // namespace

void write_engagement(const EngagementResult& curve, const std::filesystem::path& directory) {
  std::string stem = "engagement";
  if (!curve.name.empty()) stem.append(".").append(file_safe(curve.name));
  write_file_atomic(directory / (stem + ".csv"), points_table(curve).csv());
  if (!leading(curve).empty()) {
    write_file_atomic(directory / (stem + ".svg"), standalone_svg(curve_plot(curve).svg()));
  }
}

Section engagement_section() {
  return {.title = "How often the large model must decide", .parts = engagement_parts};
}

}  // namespace draftsmith::evaluate
