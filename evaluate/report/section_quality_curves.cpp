// Plots of quality against latency, as in BiLD's figure 7 (Kim et al. 2023), and against speedup.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/plot.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

// Settings of one method's grid, timed and at temperature 0.
struct Group {
  std::string name;
  std::vector<PlotPoint> points;  // x: latency relative to greedy decoding of the target, y: quality

  // Returns the points that no other point beats in both latency and quality, by rising latency.
  std::vector<PlotPoint> front() const {
    std::vector<PlotPoint> sorted = points;
    std::sort(sorted.begin(), sorted.end(),
              [](const PlotPoint& a, const PlotPoint& b) { return a.x != b.x ? a.x < b.x : a.y > b.y; });
    std::vector<PlotPoint> best;
    for (const PlotPoint& point : sorted) {
      if (best.empty() || point.y > best.back().y) best.push_back(point);
    }
    return best;
  }
};

PlotPoint latency_point(const std::string& name, double latency, double quality) {
  return {latency, quality, fmt::format("{}: latency {:.3f}, quality {:.4g}", name, latency, quality)};
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
            .x_title = "latency relative to greedy decoding (black); lines: its quality, one point below",
            .y_title = score.name,
            .series = {},
            .levels = {{greedy->value}, {greedy->value - score.point}}};
  for (size_t i = 0; i < groups.size(); ++i) {
    const SeriesStyle style = series_style(i);
    plot.series.push_back({.name = groups[i].name,
                           .style = style,
                           .marks = groups[i].points,
                           .line = groups[i].front(),
                           .line_title = groups[i].name,
                           .dashes = style.filled ? "" : "5 3"});
  }
  plot.series.push_back(
      {.name = "", .style = {"#000", true}, .marks = {latency_point(view.task.baseline.name, 1, greedy->value)}});
  return {{.plots = {plot.svg()}}};
}

std::pair<double, double> range(const metrics::Interval& interval) {
  return {interval.low, interval.high};
}

std::vector<Part> speedup_parts(const TaskView& view, Form form) {
  if (form == Form::kBrief) return {};
  const ScoreStyle score = score_style(view.task);
  PlotSeries settings{.name = "", .style = {"#3a76b1", true}};
  size_t index = 0;
  for (const SettingResult* setting : view.task.rows()) {
    const std::string label = std::to_string(index++);
    const auto* quality = setting->quality.find(score.name);
    const Ratio& speedup = setting->speed.speedup;
    if (quality == nullptr || !std::isfinite(speedup.value) || !std::isfinite(speedup.interval.low)) continue;
    settings.marks.push_back(
        {.x = speedup.value,
         .y = quality->value,
         .title = fmt::format("{}: {:.2f}× at {:.4g}", setting->name, speedup.value, quality->value),
         .label = label,
         .x_interval = range(speedup.interval),
         .y_interval = range(quality->interval)});
  }
  if (settings.marks.empty()) return {};
  const Plot plot{.label = "quality against speedup",
                  .x_title = "speedup (numbers are the table's rows)",
                  .y_title = score.name,
                  .series = {settings}};
  return {{.plots = {plot.svg()}}};
}

}  // namespace

Section quality_latency_section() {
  return {.title = "Quality against latency", .parts = latency_parts};
}

Section quality_speedup_section() {
  return {.title = "Quality against speedup", .parts = speedup_parts};
}

}  // namespace draftsmith::evaluate
