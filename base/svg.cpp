#include "base/svg.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/html.h"

namespace draftsmith {

SeriesStyle series_style(size_t index) {
  static constexpr std::array kColors{"#3a76b1", "#e8963e", "#4a9c5d", "#b04a78",
                                      "#7a5bb0", "#8a7a3a", "#3aa0a0", "#777777"};
  return {kColors[index % kColors.size()], index < kColors.size()};
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

std::string svg_box(const SvgBox& box, const std::string& color, const std::string& title, double opacity) {
  const std::string fill = opacity < 1 ? fmt::format("{}\" fill-opacity=\"{:.3f}", color, opacity) : color;
  return fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"><title>{}</title></rect>\n",
      box.left, box.top, box.width, box.height, fill, escape_html(title));
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
