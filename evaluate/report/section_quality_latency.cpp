// Plot of quality against latency, as in BiLD's figure 7 (Kim et al. 2023).
#include <algorithm>

#include <fmt/format.h>

#include "base/plots.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

// Settings of one method's grid, timed and at temperature 0.
struct Group {
  std::string name;
  std::vector<PlotPoint> points;  // x: latency relative to greedy decoding of the target, y: quality

  // Returns the points that no other point beats in both latency and quality, by rising latency.
  std::vector<PlotPoint> front(const ScoreStyle& score) const {
    std::vector<PlotPoint> sorted = points;
    std::sort(sorted.begin(), sorted.end(), [&](const PlotPoint& a, const PlotPoint& b) {
      return a.x != b.x ? a.x < b.x : score.loss(a.y, b.y) > 0;
    });
    std::vector<PlotPoint> best;
    for (const PlotPoint& point : sorted) {
      if (best.empty() || score.loss(best.back().y, point.y) < 0) best.push_back(point);
    }
    return best;
  }
};

PlotPoint latency_point(const std::string& name, double latency, double quality) {
  return {.x = latency,
          .y = quality,
          .title = fmt::format("{}: latency {:.3f}, quality {:.4g}", name, latency, quality),
          .key = name};
}

// Returns the groups in the order of their first setting.
std::vector<Group> groups_of(const TaskResult& task, const std::string& score) {
  std::vector<Group> groups;
  for (const SettingResult& setting : task.settings) {
    const auto* quality = setting.quality.find(score);
    const double speedup = setting.speed.speedup.value;
    if (quality == nullptr || !(speedup > 0) || setting.baseline != task.baseline.name || setting.repeats) continue;
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const Group& one) { return one.name == setting.group; });
    if (group == groups.end()) group = groups.insert(groups.end(), {setting.group, {}});
    group->points.push_back(latency_point(setting.name, 1 / speedup, quality->value));
  }
  return groups;
}

// Returns the plot against latency: a colour for each group and a line through the points that no other beats. Lines
// mark the quality of greedy decoding and one point below. Returns nothing unless a group has several points.
std::vector<Part> latency_parts(const TaskView& view, Form form) {
  const ScoreStyle score = score_style(view.task);
  const auto* greedy = view.task.baseline.quality.find(score.name);
  if (form == Form::kBrief || greedy == nullptr) return {};
  const auto groups = groups_of(view.task, score.name);
  if (std::none_of(groups.begin(), groups.end(), [](const Group& group) { return group.points.size() > 1; })) return {};
  Plot plot{.label = "quality against latency",
            .x_title = "time, as a share of greedy decoding's",
            .y_title = score_words(score.name),
            .series = {},
            .levels = {{greedy->value, "greedy decoding"}, one_point_worse(greedy->value, score)}};
  for (size_t i = 0; i < groups.size(); ++i) {
    const SeriesStyle style = series_style(i);
    plot.series.push_back({.name = groups[i].name,
                           .style = style,
                           .marks = groups[i].points,
                           .line = groups[i].front(score),
                           .line_title = groups[i].name,
                           .dashes = style.filled ? "" : "5 3"});
  }
  plot.series.push_back(
      {.name = "", .style = kInk, .marks = {latency_point(view.task.baseline.name, 1, greedy->value)}});
  return {{.figures = {figure_of(plot,
                                 "Each method's grid of thresholds, with a line through the settings that no other "
                                 "of the same grid beats in both time and quality.")}}};
}

}  // namespace

Section quality_latency_section() {
  return {.title = "Quality against latency", .parts = latency_parts};
}

}  // namespace draftsmith::evaluate
