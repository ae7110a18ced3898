// Data of plots that the pages of reports draw (evaluate/report/page/plots.page.js). Each mark has its numbers as text
// too, so that a plot can be read without colours.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace draftsmith {

// Look of a series. Marks differ in shape too, so that a plot can be read without colours.
struct SeriesStyle {
  bool filled = true;        // marks are filled, and lines thick
  size_t shape = 0;          // of marks, 0 to 4: circle, square, diamond, triangle, triangle on its tip
  const char* name = "ink";  // class in style sheets: "s0" to "s7", or "ink", the colour of text
};
// Returns the look of the series with that index. After eight colours the first comes again, hollow or thin in place of
// filled; shapes repeat after five, so that no two of the first 40 look alike.
SeriesStyle series_style(size_t index);
// Look of what is no series: the colour of text.
inline constexpr SeriesStyle kInk{};

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

// Points, intervals and levels that are not finite numbers are left out.
struct Plot {
  std::string label;  // for readers who do not see the plot
  std::string x_title;
  std::string y_title;
  std::vector<PlotSeries> series;
  std::vector<PlotLevel> levels = {};
  bool diagonal = false;  // a line where x equals y

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

  nlohmann::ordered_json json() const;
};

}  // namespace draftsmith
