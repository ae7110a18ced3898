#include "base/plots.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/table.h"
#include "base/utf8.h"

namespace draftsmith {

namespace {

// Returns the path of a mark around the origin, of about the same area for each shape.
const char* shape_path(size_t shape) {
  static constexpr std::array<const char*, kShapes> kPaths{"M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0z",
                                                           "M-4,-4h8v8h-8z", "M0,-5.6L5.6,0L0,5.6L-5.6,0z",
                                                           "M0,-5.4L5.4,4.2H-5.4z", "M0,5.4L5.4,-4.2H-5.4z"};
  return kPaths[shape % kPaths.size()];
}

std::string title_element(const std::string& title) {
  return title.empty() ? "" : "<title>" + escape_html(title) + "</title>";
}

// Returns a line. kind: a class of the report's style, "grid" or "whisker".
std::string svg_line(double x1, double y1, double x2, double y2, const char* kind) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2, y2,
                     kind);
}

// Returns a mark of the style's shape around a point. It shows `title` when the pointer rests on it.
std::string svg_mark(double x, double y, const SeriesStyle& style, const std::string& title = "") {
  return fmt::format(
      "<path class=\"mark {}{}\" d=\"{}\" transform=\"translate({:.1f},{:.1f})\" fill=\"{}\" stroke=\"{}\" "
      "stroke-width=\"1.5\">{}</path>\n",
      style.name, style.filled ? "" : " hollow", shape_path(style.shape), x, y, style.filled ? style.color : "#fff",
      style.color, title_element(title));
}

std::string rectangle(const SvgBox& box, const std::string& look, double opacity, const std::string& title) {
  const std::string faint = opacity < 1 ? fmt::format(" fill-opacity=\"{:.3f}\"", opacity) : "";
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" {}{}>{}</rect>\n", box.left,
                     box.top, box.width, box.height, look, faint, title_element(title));
}

}  // namespace

// Colours of Okabe and Ito's palette, which colour-blind readers can tell apart, a little darker for white paper.
SeriesStyle series_style(size_t index) {
  static constexpr std::array kColors{"#0072b2", "#d55e00", "#009e73", "#a8558a",
                                      "#c98a00", "#3a9bd0", "#7a5c3a", "#777777"};
  static constexpr std::array kNames{"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"};
  static_assert(kColors.size() == kNames.size());
  const size_t color = index % kColors.size();
  return {.color = kColors[color], .filled = index < kColors.size(), .shape = index % kShapes, .name = kNames[color]};
}

std::string open_svg(double height, const std::string& label) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kPlotWidth, height, label);
}

std::string standalone_svg(const std::string& svg) {
  const std::string open = "<svg ";
  const size_t end = svg.find('>');
  if (!svg.starts_with(open) || end == std::string::npos) return svg;
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" " + svg.substr(open.size(), end + 1 - open.size()) +
         "\n<style>text{font:12px system-ui,sans-serif}.grid{stroke:#e3e8ec}.whisker{stroke:#888}</style>" +
         svg.substr(end + 1);
}

std::string svg_text(double x, double y, const std::string& text, const char* anchor) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escape_html(text));
}

std::string svg_box(const SvgBox& box, const SeriesStyle& style, const std::string& title, double opacity) {
  return rectangle(box, fmt::format("class=\"box {}\" fill=\"{}\"", style.name, style.color), opacity, title);
}

std::string svg_box(const SvgBox& box, const std::string& color, const std::string& title, double opacity) {
  return rectangle(box, fmt::format("fill=\"{}\"", color), opacity, title);
}

namespace {

// A linear scale from data to pixels, with round tick values.
class Scale {
 public:
  // Maps [low,high], with some room on both sides, onto [from,to].
  Scale(double low, double high, double from, double to) : from_(from), to_(to) {
    const double span = std::max(high - low, std::max(std::abs(high) * 0.02, 1e-6));
    low_ = low - span * 0.06;
    high_ = high + span * 0.06;
  }
  double operator()(double value) const { return from_ + (value - low_) / (high_ - low_) * (to_ - from_); }
  std::vector<double> ticks() const {
    const double raw = (high_ - low_) / 5;
    const double power = std::pow(10, std::floor(std::log10(raw)));
    double step = power;
    for (const double factor : {2.0, 5.0, 10.0}) {
      if (step < raw) step = power * factor;
    }
    std::vector<double> values;
    for (double value = std::ceil(low_ / step) * step; value <= high_; value += step) values.push_back(value);
    return values;
  }
  double end() const { return to_; }  // in pixels

 private:
  double from_;
  double to_;
  double low_ = 0;
  double high_ = 1;
};

// Returns grid lines and numbers at both scales' ticks; the plot's corner is at (left, bottom).
std::string axes(const Scale& x, const Scale& y, double left, double bottom) {
  std::string svg;
  for (const double tick : x.ticks()) {
    svg += svg_line(x(tick), 20, x(tick), bottom, "grid") +
           svg_text(x(tick), bottom + 16, fmt::format("{:.3g}", tick), "middle");
  }
  for (const double tick : y.ticks()) {
    svg += svg_line(left, y(tick), x.end(), y(tick), "grid") +
           svg_text(left - 6, y(tick) + 4, fmt::format("{:.4g}", tick), "end");
  }
  return svg;
}

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
  ordered_json data{{"name", series.name},
                    {"style", series.style.name},
                    {"filled", series.style.filled},
                    {"shape", series.style.shape},
                    {"marks", ordered_json::array()},
                    {"line", ordered_json::array()},
                    {"line_title", series.line_title},
                    {"line_width", series.line_width},
                    {"dashes", series.dashes}};
  for (const PlotPoint& point : series.marks) {
    data["marks"].push_back({{"x", point.x},
                             {"y", point.y},
                             {"title", point.title},
                             {"label", point.label},
                             {"key", point.key},
                             {"x_interval", interval_json(point.x_interval)},
                             {"y_interval", interval_json(point.y_interval)}});
  }
  for (const PlotPoint& point : series.line) data["line"].push_back({point.x, point.y});
  return data;
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

namespace {

using nlohmann::ordered_json;

constexpr double kNames = 270;  // width left of bars
constexpr double kTotals = 80;  // and right of them
constexpr double kRow = 22;
constexpr double kPart = 90;    // width of a part in the legend
constexpr double kPanel = 100;  // height of a panel
constexpr double kColumns = 50;
constexpr size_t kLongestName = 44;  // characters that fit left of bars

double length_of(double value) {
  return std::isfinite(value) && value > 0 ? value : 0;
}

double total_of(const Bar& bar) {
  double total = 0;
  for (const double value : bar.values) total += length_of(value);
  return total;
}

std::string shown_name(const std::string& name) {
  return name.size() <= kLongestName ? name : cut_to_width(name, kLongestName);
}

std::string part_title(const BarPlot& plot, const Bar& bar, size_t part) {
  return fmt::format("{}: {} {:.3g} {}", bar.name, plot.parts[part], bar.values[part], plot.unit);
}

std::string column_title(const ColumnPlot& plot, size_t number, double share) {
  return fmt::format("{} {}: {:.1f} %", number, plot.x_title, 100 * share);
}

std::string bar_svg(const BarPlot& plot, const Bar& bar, double top, double scale) {
  std::string svg = svg_text(kNames - 6, top + 14, shown_name(bar.name), "end");
  double left = kNames;
  for (size_t part = 0; part < plot.parts.size(); ++part) {
    const double width = length_of(bar.values[part]) * scale;
    if (width > 0) svg += svg_box({left, top + 2, width, kRow - 6}, series_style(part), part_title(plot, bar, part));
    left += width;
  }
  return svg + svg_text(left + 5, top + 14, bar.total);
}

std::string panel_svg(const ColumnPlot& plot, const ColumnPanel& panel, double top) {
  const double column = std::min(40.0, (kPlotWidth - 80) / static_cast<double>(panel.shares.size()));
  std::string svg = svg_text(8, top + 14, panel.name);
  for (size_t i = 0; i < panel.shares.size(); ++i) {
    const double share = length_of(panel.shares[i]);
    const double left = 60 + column * static_cast<double>(i);
    svg += svg_box({left, top + 72 - kColumns * share, column - 3, kColumns * share}, series_style(0),
                   column_title(plot, i, share));
    svg += svg_text(left + column / 2 - 1, top + 86, std::to_string(i), "middle");
  }
  return svg;
}

}  // namespace

std::string BarPlot::svg() const {
  double longest = 0;
  for (const Bar& bar : bars) longest = std::max(longest, total_of(bar));
  const double scale = longest > 0 ? (kPlotWidth - kNames - kTotals) / longest : 0;
  std::string svg = open_svg(kRow * static_cast<double>(bars.size() + 1) + 8, escape_html(label));
  for (size_t part = 0; part < parts.size(); ++part) {
    const double left = kNames + kPart * static_cast<double>(part);
    svg += svg_box({left, 4, 10, 10}, series_style(part), parts[part]) + svg_text(left + 14, 13, parts[part]);
  }
  double top = kRow;
  for (const Bar& bar : bars) {
    svg += bar_svg(*this, bar, top, scale);
    top += kRow;
  }
  return svg + "</svg>\n";
}

ordered_json BarPlot::json() const {
  ordered_json json{{"type", "bars"}, {"label", label}, {"unit", unit}, {"parts", ordered_json::array()}};
  for (size_t part = 0; part < parts.size(); ++part) {
    json["parts"].push_back({{"name", parts[part]}, {"style", series_style(part).name}});
  }
  json["rows"] = ordered_json::array();
  for (const Bar& bar : bars) {
    ordered_json values = ordered_json::array();
    for (const double value : bar.values) values.push_back(length_of(value));
    json["rows"].push_back({{"name", bar.name}, {"values", values}, {"total", bar.total}, {"key", bar.key}});
  }
  return json;
}

std::string ColumnPlot::svg() const {
  std::string svg = open_svg(kPanel * static_cast<double>(panels.size()), escape_html(label));
  double top = 0;
  for (const ColumnPanel& panel : panels) {
    svg += panel_svg(*this, panel, top);
    top += kPanel;
  }
  return svg + "</svg>\n";
}

ordered_json ColumnPlot::json() const {
  ordered_json json{{"type", "columns"}, {"label", label}, {"x", x_title}, {"panels", ordered_json::array()}};
  for (const ColumnPanel& panel : panels) {
    ordered_json shares = ordered_json::array();
    for (const double share : panel.shares) shares.push_back(length_of(share));
    json["panels"].push_back({{"name", panel.name}, {"shares", shares}, {"key", panel.key}});
  }
  return json;
}

}  // namespace draftsmith
