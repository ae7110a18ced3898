// Plots: inline SVG, and data for pages that draw them as wide as their window. Each mark has its numbers as text too,
// so that a plot can be read without colours.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace draftsmith {

inline constexpr double kPlotWidth = 760;  // of a plot's own coordinates

// Look of a series. Marks differ in shape too, so that a plot can be read without colours.
struct SeriesStyle {
  const char* color;         // of files of their own; pages have colours for light and dark by `name`
  bool filled = true;        // marks are filled, and lines thick
  size_t shape = 0;          // of marks, 0 to kShapes - 1: circle, square, diamond, triangle, triangle on its tip
  const char* name = "ink";  // class in style sheets: "s0" to "s7", or "ink", the colour of text
};
inline constexpr size_t kShapes = 5;
// Returns the look of the series with that index. After eight colours the first comes again, hollow or thin in place of
// filled; shapes repeat after five, so that no two of the first 40 look alike.
SeriesStyle series_style(size_t index);
// Returns the look of what is no series: the colour of text.
inline constexpr SeriesStyle kInk{.color = "#1d2329"};

// Returns the opening tag, with a label for readers who do not see the plot.
std::string open_svg(double height, const std::string& label);
// Returns an inline plot as a file of its own, with its namespace and the styles that reports give it.
std::string standalone_svg(const std::string& svg);
// Returns a text, which is escaped. anchor: start, middle or end.
std::string svg_text(double x, double y, const std::string& text, const char* anchor = "start");

// Rectangle of a plot.
struct SvgBox {
  double left;
  double top;
  double width;
  double height;
};
// Returns a filled rectangle that shows `title` when the pointer rests on it. opacity: of the fill, 0 to 1.
std::string svg_box(const SvgBox& box, const SeriesStyle& style, const std::string& title, double opacity = 1);
// Likewise, in a colour that is the same in the light and in the dark.
std::string svg_box(const SvgBox& box, const std::string& color, const std::string& title, double opacity = 1);

struct PlotPoint {
  double x = 0;
  double y = 0;
  std::string title;       // shown when the pointer rests on the mark
  std::string label = {};  // beside the mark, where there is room
  // Intervals drawn as whiskers.
  std::optional<std::pair<double, double>> x_interval = {};
  std::optional<std::pair<double, double>> y_interval = {};
  std::string key = {};  // name of what the mark stands for, by which a page finds its details; empty: none
};

// A line and marks of one colour.
struct PlotSeries {
  std::string name;  // in the legend; empty: not listed
  SeriesStyle style;
  std::vector<PlotPoint> marks = {};
  std::vector<PlotPoint> line = {};
  std::string line_title = {};
  double line_width = 2;
  std::string dashes = {};  // of the line, as in SVG's stroke-dasharray; empty: solid
};

// A horizontal line across the plot.
struct PlotLevel {
  double y = 0;
  std::string text = {};
};

// Points and lines whose coordinates are not finite numbers are left out.
struct Plot {
  std::string label;  // for readers who do not see the plot
  std::string x_title;
  std::string y_title;
  std::vector<PlotSeries> series;
  std::vector<PlotLevel> levels = {};
  bool diagonal = false;  // a line where x equals y

  // Returns the plot; the scales hold all points, intervals and levels.
  std::string svg() const;
  // Returns the data for evaluate/report/page/plots.page.js.
  nlohmann::ordered_json json() const;
};

// Horizontal bar with the values of all parts, one after the other.
struct Bar {
  std::string name;
  std::vector<double> values;  // one for each part; a value that is no positive number takes no room
  std::string total;           // text behind the bar
  std::string key = {};        // as PlotPoint::key
};

// Bars in rows, each of the same parts. Parts have the colours of series_style() in their order.
struct BarPlot {
  std::string label;  // for readers who do not see the plot
  std::string unit;   // of the values: "ms per token"
  std::vector<std::string> parts;
  std::vector<Bar> bars;

  std::string svg() const;
  // Returns the data for evaluate/report/page/plots.page.js.
  nlohmann::ordered_json json() const;
};

// Columns over 0, 1, 2, ...: shares of a whole.
struct ColumnPanel {
  std::string name;
  std::vector<double> shares;  // 0 to 1
  std::string key = {};        // as PlotPoint::key
};

// Small plots of columns with the same scale, one for each panel.
struct ColumnPlot {
  std::string label;    // for readers who do not see the plot
  std::string x_title;  // of the columns' numbers: "accepted tokens"
  std::vector<ColumnPanel> panels;

  std::string svg() const;
  // Returns the data for evaluate/report/page/plots.page.js.
  nlohmann::ordered_json json() const;
};

}  // namespace draftsmith
