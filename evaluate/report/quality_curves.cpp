#include "evaluate/report/quality_curves.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/html.h"
#include "base/svg.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

constexpr double kLeft = 60;
constexpr double kRight = kPlotWidth - 255;  // the legend stands beside it
constexpr double kBottom = 340;

struct Point {
  std::string name;
  double latency = 0;  // of greedy's
  double quality = 0;
};

struct Group {
  std::string name;
  std::vector<Point> points;

  // By rising latency, those that no other point is both faster and better than.
  std::vector<Point> front() const {
    std::vector<Point> sorted = points;
    std::sort(sorted.begin(), sorted.end(), [](const Point& a, const Point& b) {
      return a.latency != b.latency ? a.latency < b.latency : a.quality > b.quality;
    });
    std::vector<Point> best;
    for (const Point& point : sorted) {
      if (best.empty() || point.quality > best.back().quality) best.push_back(point);
    }
    return best;
  }
};

Point point_of(const ordered_json& run, const std::string& score) {
  return {run.at("name"), 1 / run.at("speed").at("speedup_total").get<double>(), run.at("quality").at(score)};
}

// Runs at temperature 0 that were timed, in the order of their first.
std::vector<Group> groups_of(const ordered_json& task, const std::string& score) {
  std::vector<Group> groups;
  for (const auto& run : task.at("runs")) {
    const bool timed = run.at("speed").at("speedup_total").get<double>() > 0;
    if (!timed || run.at("baseline") != "greedy") continue;
    const std::string name = run.at("group");
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& one) { return one.name == name; });
    if (group == groups.end()) group = groups.insert(groups.end(), {name, {}});
    group->points.push_back(point_of(run, score));
  }
  return groups;
}

std::string fill_of(const SeriesStyle& style) {
  return fmt::format("fill=\"{}\" stroke=\"{}\" stroke-width=\"1.5\"", style.filled ? style.color : "#fff",
                     style.color);
}

std::string circle(double x, double y, const SeriesStyle& style, const Point& point) {
  return fmt::format(
      "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" {}><title>{}: latency {:.3f}, quality {:.4g}</title></circle>\n", x,
      y, fill_of(style), escape_html(point.name), point.latency, point.quality);
}

struct Axes {
  Scale x;
  Scale y;
};

Axes axes_of(const std::vector<Group>& groups, const Point& greedy, double below) {
  double low = below;
  double high = greedy.quality;
  double fastest = greedy.latency;
  double slowest = greedy.latency;
  for (const Group& group : groups) {
    for (const Point& point : group.points) {
      low = std::min(low, point.quality);
      high = std::max(high, point.quality);
      fastest = std::min(fastest, point.latency);
      slowest = std::max(slowest, point.latency);
    }
  }
  return {Scale(fastest, slowest, kLeft, kRight), Scale(low, high, kBottom, 20)};
}

std::string draw(const Group& group, const SeriesStyle& style, const Axes& axes) {
  std::string line;
  for (const Point& point : group.front()) {
    line += fmt::format("{:.1f},{:.1f} ", axes.x(point.latency), axes.y(point.quality));
  }
  std::string svg = fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n", line,
                                style.color, style.filled ? "" : " stroke-dasharray=\"5 3\"");
  for (const Point& point : group.points) svg += circle(axes.x(point.latency), axes.y(point.quality), style, point);
  return svg;
}

std::string legend(const std::vector<Group>& groups) {
  std::string svg;
  for (size_t i = 0; i < groups.size(); ++i) {
    const double top = 24 + 18 * static_cast<double>(i);
    svg += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"4\" {}/>\n", kRight + 18, top + 2, fill_of(series_style(i)));
    svg += svg_text(kRight + 30, top + 6, groups[i].name);
  }
  return svg;
}

}  // namespace

std::string quality_curves_svg(const ordered_json& task, const std::string& score) {
  if (score.empty()) return "";
  const auto groups = groups_of(task, score);
  if (std::none_of(groups.begin(), groups.end(), [](const Group& group) { return group.points.size() > 1; })) return "";
  const Point greedy{"greedy", 1, task.at("baseline").at("quality").at(score)};
  const double below = greedy.quality - (score.starts_with("rouge") ? 0.01 : 1);
  const Axes scales = axes_of(groups, greedy, below);
  const double height = std::max(390.0, 40 + 18 * static_cast<double>(groups.size()));
  std::string svg = open_svg(height, "quality against latency") + axes(scales.x, scales.y, kLeft, kBottom);
  for (const double level : {greedy.quality, below}) {
    svg += svg_line(kLeft, scales.y(level), kRight, scales.y(level), "whisker");
  }
  for (size_t i = 0; i < groups.size(); ++i) svg += draw(groups[i], series_style(i), scales);
  svg += circle(scales.x(greedy.latency), scales.y(greedy.quality), {"#000", true}, greedy) + legend(groups);
  svg += svg_text(kRight / 2, 378, "latency relative to greedy decoding (black); lines: its quality, one point below",
                  "middle");
  return svg + svg_text(8, 12, score) + "</svg>\n";
}

}  // namespace draftsmith::evaluate
