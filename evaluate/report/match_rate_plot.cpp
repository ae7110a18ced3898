#include "evaluate/report/match_rate_plot.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "base/add_new.h"
#include "base/html.h"
#include "base/svg.h"

namespace draftsmith::evaluate {

namespace {

constexpr double kRow = 18;
constexpr double kGap = 20;     // between panels
constexpr double kLabels = 34;  // left of a panel, for its layers
constexpr double kHeading = 36;

// What all panels have in common.
struct Grid {
  std::vector<int64_t> layers;
  std::vector<std::string> positions;
  std::vector<int64_t> candidates;
  bool trained = false;  // has cells of exits

  double panel_height() const { return kHeading + kRow * static_cast<double>(layers.size()) + kGap; }
  double cell_width() const {
    const double panel = (kPlotWidth - kGap) / 2 - kLabels;
    return panel / static_cast<double>(std::max<size_t>(positions.size(), 1));
  }
};

template <class T>
double place_of(const std::vector<T>& values, const T& value) {
  return static_cast<double>(std::find(values.begin(), values.end(), value) - values.begin());
}

// From white to a blue on which black text can be read; most of it above one half, where rates are.
std::string colour(double rate) {
  const double depth = rate * rate * rate;
  const auto mix = [&](double full) { return static_cast<int>(std::lround(255 + (full - 255) * depth)); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(104), mix(162), mix(214));
}

// The first position of a bin: columns are narrower than their names.
std::string column_label(const std::string& positions) {
  if (positions == "total") return "all";
  return positions.substr(0, positions.find('-')) + (positions.ends_with('-') ? "+" : "");
}

std::string panel_frame(const Grid& grid, const std::string& title, double left, double top) {
  std::string svg = svg_text(left + kLabels, top + 12, title + ", by layer and position");
  for (size_t column = 0; column < grid.positions.size(); ++column) {
    const double x = left + kLabels + grid.cell_width() * (static_cast<double>(column) + 0.5);
    svg += svg_text(x, top + kHeading - 5, column_label(grid.positions[column]), "middle");
  }
  for (size_t row = 0; row < grid.layers.size(); ++row) {
    const double y = top + kHeading + kRow * static_cast<double>(row) + 13;
    svg += svg_text(left + kLabels - 6, y, std::to_string(grid.layers[row]), "end");
  }
  return svg;
}

std::string cell(const Grid& grid, const infer::MatchRate& rate, double left, double top) {
  const double width = grid.cell_width();
  const double x = left + kLabels + width * place_of(grid.positions, rate.positions);
  const double y = top + kHeading + kRow * place_of(grid.layers, rate.layer);
  return fmt::format(
             "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"><title>layer {}, k = {}, "
             "{} head, positions {}: {:.2f} % of {}</title></rect>\n",
             x, y, width - 1, kRow - 1, colour(rate.rate()), rate.layer, rate.k, rate.trained ? "trained" : "own",
             rate.positions, 100 * rate.rate(), rate.tokens) +
         svg_text(x + width / 2, y + 13, fmt::format("{:.0f}", 100 * rate.rate()), "middle");
}

Grid grid_of(std::span<const infer::MatchRate> rates, const std::string& decoding) {
  Grid grid;
  for (const infer::MatchRate& rate : rates) {
    if (rate.decoding != decoding) continue;
    add_new(grid.layers, rate.layer);
    add_new(grid.positions, rate.positions);
    add_new(grid.candidates, rate.k);
    grid.trained = grid.trained || rate.trained;
  }
  return grid;
}

}  // namespace

std::string match_rate_svg(std::span<const infer::MatchRate> rates, const std::string& decoding) {
  const Grid grid = grid_of(rates, decoding);
  if (grid.layers.empty()) return "";
  std::string svg = open_svg(grid.panel_height() * static_cast<double>(grid.candidates.size()),
                             escape_html("match rates by layer and position, " + decoding + " decoding"));
  const double beside = (kPlotWidth + kGap) / 2;
  for (const int64_t k : grid.candidates) {
    const double top = grid.panel_height() * place_of(grid.candidates, k);
    svg += panel_frame(grid, fmt::format("k = {}, the model's own head", k), 0, top);
    if (grid.trained) svg += panel_frame(grid, fmt::format("k = {}, trained exits", k), beside, top);
    for (const infer::MatchRate& rate : rates) {
      if (rate.decoding != decoding || rate.k != k || rate.tokens == 0) continue;
      svg += cell(grid, rate, rate.trained ? beside : 0, top);
    }
  }
  return svg + "</svg>\n";
}

}  // namespace draftsmith::evaluate
