#include "base/bars.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/html.h"
#include "base/svg.h"
#include "base/table.h"

namespace draftsmith {
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
