#include "base/svg.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/html.h"

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

std::string svg_line(double x1, double y1, double x2, double y2, const char* kind) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2, y2,
                     kind);
}

std::string svg_mark(double x, double y, const SeriesStyle& style, const std::string& title) {
  return fmt::format(
      "<path class=\"mark {}{}\" d=\"{}\" transform=\"translate({:.1f},{:.1f})\" fill=\"{}\" stroke=\"{}\" "
      "stroke-width=\"1.5\">{}</path>\n",
      style.name, style.filled ? "" : " hollow", shape_path(style.shape), x, y, style.filled ? style.color : "#fff",
      style.color, title_element(title));
}

namespace {

std::string rectangle(const SvgBox& box, const std::string& look, double opacity, const std::string& title) {
  const std::string faint = opacity < 1 ? fmt::format(" fill-opacity=\"{:.3f}\"", opacity) : "";
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" {}{}>{}</rect>\n", box.left,
                     box.top, box.width, box.height, look, faint, title_element(title));
}

}  // namespace

std::string svg_box(const SvgBox& box, const SeriesStyle& style, const std::string& title, double opacity) {
  return rectangle(box, fmt::format("class=\"box {}\" fill=\"{}\"", style.name, style.color), opacity, title);
}

std::string svg_box(const SvgBox& box, const std::string& color, const std::string& title, double opacity) {
  return rectangle(box, fmt::format("fill=\"{}\"", color), opacity, title);
}

Scale::Scale(double low, double high, double from, double to) : from_(from), to_(to) {
  const double span = std::max(high - low, std::max(std::abs(high) * 0.02, 1e-6));
  low_ = low - span * 0.06;
  high_ = high + span * 0.06;
}

std::vector<double> Scale::ticks() const {
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

}  // namespace draftsmith
