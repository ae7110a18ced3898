#include "base/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/html.h"
#include "base/utf8.h"

namespace draftsmith {
namespace {

using nlohmann::ordered_json;

constexpr double kLeft = 60;
constexpr double kTop = 20;
constexpr double kBottom = 340;
constexpr double kLegendWidth = 235;
constexpr double kLegendRow = 18;
constexpr double kCharacter = 6.3;  // width of a label's characters
constexpr double kLine = 13;        // height of a label

bool is_finite(const PlotPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y);
}

// Returns an interval whose ends are numbers, or nothing.
std::optional<std::pair<double, double>> finite(const std::optional<std::pair<double, double>>& interval) {
  return interval && std::isfinite(interval->first) && std::isfinite(interval->second) ? interval : std::nullopt;
}

// Returns the plot without what has no place in it.
Plot drawable(Plot plot) {
  for (PlotSeries& series : plot.series) {
    for (auto* points : {&series.marks, &series.line}) {
      std::erase_if(*points, [](const PlotPoint& point) { return !is_finite(point); });
    }
    for (PlotPoint& point : series.marks) {
      point.x_interval = finite(point.x_interval);
      point.y_interval = finite(point.y_interval);
    }
  }
  std::erase_if(plot.levels, [](const PlotLevel& level) { return !std::isfinite(level.y); });
  return plot;
}

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

bool overlap(const SvgBox& a, const SvgBox& b) {
  return a.left < b.left + b.width && b.left < a.left + a.width && a.top < b.top + b.height && b.top < a.top + a.height;
}

// Places for labels beside marks. A label that would cover a mark or another label is left out: the mark's title has
// the same words.
class Labels {
 public:
  Labels(double left, double right) : left_(left), right_(right) {}

  void keep_free(double x, double y) { taken_.push_back({x - 5, y - 5, 10, 10}); }

  // Returns the label of the mark at (x, y); empty if there is no room.
  std::string place(double x, double y, const std::string& text) {
    const double width = kCharacter * static_cast<double>(display_width(text));
    for (const auto& [left, baseline] : {std::pair{x + 8, y + 4},
                                         {x - 8 - width, y + 4},
                                         {x + 6, y - 8},
                                         {x + 6, y + 17},
                                         {x - 6 - width, y - 8},
                                         {x - 6 - width, y + 17}}) {
      const SvgBox box{left, baseline - kLine + 2, width, kLine};
      const bool outside = left < left_ || left + width > right_ || box.top < kTop || baseline > kBottom;
      if (outside || std::ranges::any_of(taken_, [&](const SvgBox& one) { return overlap(one, box); })) continue;
      taken_.push_back(box);
      return svg_text(left, baseline, text);
    }
    return "";
  }

 private:
  double left_;
  double right_;
  std::vector<SvgBox> taken_;
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
    if (plot_.diagonal) svg += diagonal();
    for (const PlotSeries& series : plot_.series) svg += line(series);
    for (const PlotSeries& series : plot_.series) {
      for (const PlotPoint& point : series.marks) svg += mark(point, series.style);
    }
    svg += labels() + legend() + svg_text((kLeft + right_) / 2, 378, plot_.x_title, "middle");
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

  std::string diagonal() const {
    const Extent x = x_extent();
    const Extent y = y_extent();
    const double low = std::max(x.low, y.low);
    const double high = std::min(x.high, y.high);
    return low < high ? svg_line(x_(low), y_(low), x_(high), y_(high), "whisker") : "";
  }

  std::string line(const PlotSeries& series) const {
    if (series.line.empty()) return "";
    std::string points;
    for (const PlotPoint& point : series.line) points += fmt::format("{:.1f},{:.1f} ", x_(point.x), y_(point.y));
    const std::string dashes = series.dashes.empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", series.dashes);
    return fmt::format(
        "<polyline points=\"{}\" class=\"line {}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{}><title>{}</title>"
        "</polyline>\n",
        points, series.style.name, series.style.color, series.line_width, dashes, escape_html(series.line_title));
  }

  std::string mark(const PlotPoint& point, const SeriesStyle& style) const {
    const double x = x_(point.x);
    const double y = y_(point.y);
    std::string svg;
    if (const auto& range = point.x_interval) svg += svg_line(x_(range->first), y, x_(range->second), y, "whisker");
    if (const auto& range = point.y_interval) svg += svg_line(x, y_(range->first), x, y_(range->second), "whisker");
    return svg + svg_mark(x, y, style, point.title);
  }

  std::string labels() const {
    Labels places(kLeft, right_);
    for (const PlotSeries& series : plot_.series) {
      for (const PlotPoint& point : series.marks) places.keep_free(x_(point.x), y_(point.y));
    }
    std::string svg;
    for (const PlotSeries& series : plot_.series) {
      for (const PlotPoint& point : series.marks) {
        if (!point.label.empty()) svg += places.place(x_(point.x), y_(point.y), point.label);
      }
    }
    return svg;
  }

  std::string legend() const {
    std::string svg;
    double top = 24;
    for (const PlotSeries& series : plot_.series) {
      if (series.name.empty()) continue;
      svg += svg_mark(right_ + 18, top + 2, series.style);
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

ordered_json interval_json(const std::optional<std::pair<double, double>>& interval) {
  return interval ? ordered_json{interval->first, interval->second} : ordered_json();
}

ordered_json series_json(const PlotSeries& series) {
  ordered_json json{{"name", series.name},
                    {"style", series.style.name},
                    {"filled", series.style.filled},
                    {"shape", series.style.shape},
                    {"marks", ordered_json::array()},
                    {"line", ordered_json::array()},
                    {"line_title", series.line_title},
                    {"line_width", series.line_width},
                    {"dashes", series.dashes}};
  for (const PlotPoint& point : series.marks) {
    json["marks"].push_back({{"x", point.x},
                             {"y", point.y},
                             {"title", point.title},
                             {"label", point.label},
                             {"key", point.key},
                             {"x_interval", interval_json(point.x_interval)},
                             {"y_interval", interval_json(point.y_interval)}});
  }
  for (const PlotPoint& point : series.line) json["line"].push_back({point.x, point.y});
  return json;
}

}  // namespace

std::string Plot::svg() const {
  const Plot plot = drawable(*this);
  return Drawing(plot).svg();
}

ordered_json Plot::json() const {
  const Plot plot = drawable(*this);
  ordered_json json{{"type", "points"},
                    {"label", plot.label},
                    {"x", plot.x_title},
                    {"y", plot.y_title},
                    {"diagonal", diagonal},
                    {"levels", ordered_json::array()},
                    {"series", ordered_json::array()}};
  for (const PlotLevel& level : plot.levels) json["levels"].push_back({{"y", level.y}, {"text", level.text}});
  for (const PlotSeries& one : plot.series) json["series"].push_back(series_json(one));
  return json;
}

}  // namespace draftsmith
