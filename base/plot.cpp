#include "base/plot.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/html.h"

namespace draftsmith {
namespace {

constexpr double kLeft = 60;
constexpr double kTop = 20;
constexpr double kBottom = 340;
constexpr double kLegendWidth = 235;
constexpr double kLegendRow = 18;

// Smallest and largest value that was added.
struct Extent {
  double low = std::numeric_limits<double>::max();
  double high = std::numeric_limits<double>::lowest();

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void add(double value, const std::optional<std::pair<double, double>>& interval) {
    add(value);
    if (!interval) return;
    add(interval->first);
    add(interval->second);
  }
  Scale scale(double from, double to) const { return low > high ? Scale(0, 1, from, to) : Scale(low, high, from, to); }
};

class Drawing {
 public:
  explicit Drawing(const Plot& plot)
      : plot_(plot),
        listed_(
            std::count_if(plot.series.begin(), plot.series.end(), [](const auto& one) { return !one.name.empty(); })),
        right_(kPlotWidth - 20 - (listed_ > 0 ? kLegendWidth : 0)),
        x_(x_extent().scale(kLeft, right_)),
        y_(y_extent().scale(kBottom, kTop)) {}

  std::string svg() const {
    const double height = std::max(390.0, 40 + kLegendRow * static_cast<double>(listed_));
    std::string svg = open_svg(height, escape_html(plot_.label)) + axes(x_, y_, kLeft, kBottom);
    for (const PlotLevel& level : plot_.levels) {
      svg += svg_line(kLeft, y_(level.y), right_, y_(level.y), "whisker");
      if (!level.text.empty()) svg += svg_text(kLeft + 4, y_(level.y) - 4, level.text);
    }
    for (const PlotSeries& series : plot_.series) svg += line(series);
    for (const PlotSeries& series : plot_.series) {
      for (const PlotPoint& point : series.marks) svg += mark(point, series.style);
    }
    svg += legend() + svg_text((kLeft + right_) / 2, 378, plot_.x_title, "middle");
    return svg + svg_text(8, 12, plot_.y_title) + "</svg>\n";
  }

 private:
  template <class Add>
  void for_each_point(const Add& add) const {
    for (const PlotSeries& series : plot_.series) {
      for (const PlotPoint& point : series.marks) add(point);
      for (const PlotPoint& point : series.line) add(point);
    }
  }
  Extent x_extent() const {
    Extent extent;
    for_each_point([&](const PlotPoint& point) { extent.add(point.x, point.x_interval); });
    return extent;
  }
  Extent y_extent() const {
    Extent extent;
    for_each_point([&](const PlotPoint& point) { extent.add(point.y, point.y_interval); });
    for (const PlotLevel& level : plot_.levels) extent.add(level.y);
    return extent;
  }

  static std::string fill(const SeriesStyle& style) {
    return fmt::format("fill=\"{}\" stroke=\"{}\" stroke-width=\"1.5\"", style.filled ? style.color : "#fff",
                       style.color);
  }

  std::string line(const PlotSeries& series) const {
    if (series.line.empty()) return "";
    std::string points;
    for (const PlotPoint& point : series.line) points += fmt::format("{:.1f},{:.1f} ", x_(point.x), y_(point.y));
    const std::string dashes = series.dashes.empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", series.dashes);
    return fmt::format(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{}><title>{}</title></polyline>\n",
        points, series.style.color, series.line_width, dashes, escape_html(series.line_title));
  }

  std::string mark(const PlotPoint& point, const SeriesStyle& style) const {
    const double x = x_(point.x);
    const double y = y_(point.y);
    std::string svg;
    if (const auto& range = point.x_interval) svg += svg_line(x_(range->first), y, x_(range->second), y, "whisker");
    if (const auto& range = point.y_interval) svg += svg_line(x, y_(range->first), x, y_(range->second), "whisker");
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" {}><title>{}</title></circle>\n", x, y, fill(style),
                       escape_html(point.title));
    return point.label.empty() ? svg : svg + svg_text(x + 7, y - 6, point.label);
  }

  std::string legend() const {
    std::string svg;
    double top = 24;
    for (const PlotSeries& series : plot_.series) {
      if (series.name.empty()) continue;
      svg += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"4\" {}/>\n", right_ + 18, top + 2, fill(series.style));
      svg += svg_text(right_ + 30, top + 6, series.name);
      top += kLegendRow;
    }
    return svg;
  }

  const Plot& plot_;
  std::ptrdiff_t listed_;  // series in the legend
  double right_;
  Scale x_;
  Scale y_;
};

}  // namespace

std::string Plot::svg() const {
  return Drawing(*this).svg();
}

}  // namespace draftsmith
