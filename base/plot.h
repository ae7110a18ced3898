// Line and point plots: inline SVG, and data for pages that draw them as wide as their window. Each mark has its
// numbers as text too, so that a plot can be read without colours.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/svg.h"

namespace draftsmith {

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
  // Returns the plot's data for evaluate/report/page/plots.page.js.
  nlohmann::ordered_json json() const;
};

}  // namespace draftsmith
