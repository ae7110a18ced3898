#include "evaluate/report/plots.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "base/html.h"
#include "base/svg.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

constexpr std::array kPhases{"encode", "prefill", "draft", "verify", "other"};
constexpr std::array kColors{"#7a8b99", "#b0bec5", "#e8963e", "#3a76b1", "#9b9b9b"};

std::vector<const ordered_json*> all_runs(const ordered_json& task) {
  std::vector<const ordered_json*> runs{&task.at("baseline")};
  for (const auto& run : task.at("runs")) runs.push_back(&run);
  return runs;
}

struct Point {
  std::string name;
  double x, x_low, x_high, y, y_low, y_high;
};

std::vector<Point> points_of(const ordered_json& task, const std::string& score) {
  std::vector<Point> points;
  for (const auto* run : all_runs(task)) {
    const auto& speed = run->at("speed");
    const auto& quality = run->at("quality");
    const auto& x = speed.at("speedup_ci95");
    const auto& y = quality.at(score + "_ci95");
    points.push_back({run->at("name"), speed.at("speedup"), x.at(0), x.at(1), quality.at(score), y.at(0), y.at(1)});
  }
  return points;
}

template <typename Member>
std::pair<double, double> range_of(const std::vector<Point>& points, Member low, Member high) {
  double smallest = points.front().*low;
  double largest = points.front().*high;
  for (const auto& point : points) {
    smallest = std::min(smallest, point.*low);
    largest = std::max(largest, point.*high);
  }
  return {smallest, largest};
}

}  // namespace

std::string scatter_svg(const ordered_json& task, const std::string& score) {
  const auto points = points_of(task, score);
  constexpr double kLeft = 60;
  constexpr double kBottom = 340;
  const auto [x_low, x_high] = range_of(points, &Point::x_low, &Point::x_high);
  const auto [y_low, y_high] = range_of(points, &Point::y_low, &Point::y_high);
  const Scale x(x_low, x_high, kLeft, kPlotWidth - 20);
  const Scale y(y_low, y_high, kBottom, 20);
  std::string svg = open_svg(390, "quality against speedup") + axes(x, y, kLeft, kBottom);
  for (size_t i = 0; i < points.size(); ++i) {
    const Point& point = points[i];
    svg += svg_line(x(point.x_low), y(point.y), x(point.x_high), y(point.y), "whisker");
    svg += svg_line(x(point.x), y(point.y_low), x(point.x), y(point.y_high), "whisker");
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" class=\"point\"><title>{}: {:.2f}× at {:.4g}</title></circle>\n",
        x(point.x), y(point.y), escape_html(point.name), point.x, point.y);
    svg += svg_text(x(point.x) + 7, y(point.y) - 6, std::to_string(i));
  }
  svg += svg_text(kPlotWidth / 2, 378, "speedup (numbers are the table's rows)", "middle");
  return svg + svg_text(8, 12, score) + "</svg>\n";
}

std::string histograms_svg(const ordered_json& task) {
  constexpr double kPanel = 90;
  std::string body;
  double top = 0;
  for (const auto* run : all_runs(task)) {
    const auto counts = run->at("acceptance").at("accepted_histogram").get<std::vector<double>>();
    double total = 0;
    for (const double count : counts) total += count;
    if (total == 0) continue;
    const double bar = std::min(40.0, (kPlotWidth - 80) / static_cast<double>(counts.size()));
    body += svg_text(8, top + 14, run->at("name"));
    for (size_t length = 0; length < counts.size(); ++length) {
      const double share = counts[length] / total;
      const double left = 60 + bar * static_cast<double>(length);
      body += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#3a76b1\"><title>{} accepted: "
          "{:.1f} %</title></rect>\n",
          left, top + 72 - 50 * share, bar - 3, 50 * share, length, 100 * share);
      body += svg_text(left + bar / 2 - 1, top + 84, std::to_string(length), "middle");
    }
    top += kPanel + 8;
  }
  if (body.empty()) return "";
  return open_svg(top, "accepted lengths") + body + "</svg>\n";
}

std::string phases_svg(const ordered_json& task) {
  const auto runs = all_runs(task);
  double longest = 0;
  for (const auto* run : runs) longest = std::max(longest, run->at("speed").at("ms_per_token").get<double>());
  if (longest == 0) return "";
  constexpr double kLeft = 260;
  constexpr double kRow = 22;
  std::string svg = open_svg(kRow * static_cast<double>(runs.size()) + 30, "time by phase");
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& speed = runs[i]->at("speed");
    const double tokens = std::max(speed.at("tokens").get<double>(), 1.0);
    const double top = kRow * static_cast<double>(i);
    double left = kLeft;
    svg += svg_text(kLeft - 6, top + 14, runs[i]->at("name"), "end");
    for (size_t phase = 0; phase < kPhases.size(); ++phase) {
      const double milliseconds = 1000 * speed.at("seconds").at(kPhases[phase]).get<double>() / tokens;
      const double width = milliseconds / longest * (kPlotWidth - kLeft - 70);
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"><title>{}: {:.3f} ms per "
          "token</title></rect>\n",
          left, top + 2, width, kRow - 6, kColors[phase], kPhases[phase], milliseconds);
      left += width;
    }
    svg += svg_text(left + 4, top + 14, fmt::format("{:.2f} ms", speed.at("ms_per_token").get<double>()));
  }
  double left = kLeft;
  for (size_t phase = 0; phase < kPhases.size(); ++phase) {
    const double y = kRow * static_cast<double>(runs.size()) + 10;
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n", left, y,
                       kColors[phase]);
    svg += svg_text(left + 14, y + 9, kPhases[phase]);
    left += 80;
  }
  return svg + "</svg>\n";
}

}  // namespace draftsmith::evaluate
