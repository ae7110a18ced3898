// Bar plots: inline SVG, and data for pages that draw them as wide as their window.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace draftsmith {

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
  // Returns the plot's data for evaluate/report/page/plots.page.js.
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
  // Returns the plot's data for evaluate/report/page/plots.page.js.
  nlohmann::ordered_json json() const;
};

}  // namespace draftsmith
