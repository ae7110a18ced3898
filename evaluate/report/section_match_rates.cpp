// Match rates of early predictions (infer/forced/match_rates.h), as in PPD's tables 2 and 5 to 8: a table of totals,
// and heat maps by layer and position.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/files.h"
#include "base/plots.h"
#include "base/util.h"
#include "evaluate/report/report.h"
#include "evaluate/report/sections.h"
#include "evaluate/suite/setting_grid.h"

namespace draftsmith::evaluate {
namespace {

using infer::MatchRate;
using Cells = std::vector<MatchRate>;

constexpr double kPanelRow = 18;
constexpr double kGap = 20;     // between panels
constexpr double kLabels = 34;  // width left of a panel, for the layers
constexpr double kHeading = 36;

// Returns whether a bin of positions is the total of all.
bool is_total(const std::string& positions) {
  return positions == "total";
}

bool same_row(const MatchRate& a, const MatchRate& b) {
  return a.layer == b.layer && a.k == b.k && a.trained == b.trained;
}

std::string percentage(const MatchRate& rate) {
  return rate.tokens == 0 ? "" : fmt::format("{:.1f}", 100 * rate.rate());
}

// Returns the table of totals: a row for each layer, k and head, a column for each decoding.
Table totals_table(const Cells& cells) {
  Cells totals;
  std::copy_if(cells.begin(), cells.end(), std::back_inserter(totals),
               [](const MatchRate& rate) { return is_total(rate.positions); });
  std::vector<std::string> decodings;
  Cells rows;  // first cell of each row
  for (const MatchRate& rate : totals) {
    add_new(decodings, rate.decoding);
    const auto known = [&](const MatchRate& row) { return same_row(row, rate); };
    if (std::none_of(rows.begin(), rows.end(), known)) rows.push_back(rate);
  }
  std::vector<Column> columns{{"layer"}, {"k"}, {"head", Align::kLeft}};
  for (const std::string& decoding : decodings) columns.push_back({decoding});
  Table table(std::move(columns));
  for (const MatchRate& row : rows) {
    std::vector<std::string> line{std::to_string(row.layer), std::to_string(row.k), head_name(row.trained)};
    for (const std::string& decoding : decodings) {
      const auto found = std::find_if(totals.begin(), totals.end(), [&](const MatchRate& rate) {
        return same_row(rate, row) && rate.decoding == decoding;
      });
      line.push_back(found == totals.end() ? "" : percentage(*found));
    }
    table.add_row(std::move(line));
  }
  return table;
}

// Layout that all panels of a heat map share.
struct Grid {
  std::vector<int64_t> layers;
  std::vector<std::string> positions;
  std::vector<int64_t> candidates;
  bool trained = false;  // there are cells of exits

  double panel_height() const { return kHeading + kPanelRow * static_cast<double>(layers.size()) + kGap; }
  double cell_width() const {
    const double panel = (kPlotWidth - kGap) / 2 - kLabels;
    return panel / static_cast<double>(std::max<size_t>(positions.size(), 1));
  }
};

template <class T>
double place_of(const std::vector<T>& values, const T& value) {
  return static_cast<double>(std::find(values.begin(), values.end(), value) - values.begin());
}

// Returns a colour between white and a light blue. It changes most above one half, where rates are.
std::string colour(double rate) {
  const double depth = rate * rate * rate;
  const auto mix = [&](double full) { return static_cast<int>(std::lround(255 + (full - 255) * depth)); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(104), mix(162), mix(214));
}

// Returns the first position of a bin, since columns are narrower than the bins' names.
std::string column_label(const std::string& positions) {
  if (is_total(positions)) return "all";
  return positions.substr(0, positions.find('-')) + (positions.ends_with('-') ? "+" : "");
}

std::string panel_frame(const Grid& grid, const std::string& title, double left, double top) {
  std::string svg = svg_text(left + kLabels, top + 12, title + ", by layer and position");
  for (size_t column = 0; column < grid.positions.size(); ++column) {
    const double x = left + kLabels + grid.cell_width() * (static_cast<double>(column) + 0.5);
    svg += svg_text(x, top + kHeading - 5, column_label(grid.positions[column]), "middle");
  }
  for (size_t row = 0; row < grid.layers.size(); ++row) {
    const double y = top + kHeading + kPanelRow * static_cast<double>(row) + 13;
    svg += svg_text(left + kLabels - 6, y, std::to_string(grid.layers[row]), "end");
  }
  return svg;
}

std::string cell(const Grid& grid, const MatchRate& rate, double left, double top) {
  const double width = grid.cell_width();
  const double x = left + kLabels + width * place_of(grid.positions, rate.positions);
  const double y = top + kHeading + kPanelRow * place_of(grid.layers, rate.layer);
  const std::string title = fmt::format("layer {}, k = {}, {} head, positions {}: {:.2f} % of {}", rate.layer, rate.k,
                                        head_name(rate.trained), rate.positions, 100 * rate.rate(), rate.tokens);
  return svg_box({x, y, width - 1, kPanelRow - 1}, colour(rate.rate()), title) +
         svg_text(x + width / 2, y + 13, fmt::format("{:.0f}", 100 * rate.rate()), "middle");
}

Grid grid_of(const Cells& cells, const std::string& decoding) {
  Grid grid;
  for (const MatchRate& rate : cells) {
    if (rate.decoding != decoding) continue;
    add_new(grid.layers, rate.layer);
    add_new(grid.positions, rate.positions);
    add_new(grid.candidates, rate.k);
    grid.trained = grid.trained || rate.trained;
  }
  return grid;
}

// Returns the heat map of a decoding, with percentages in the cells. Each k has a panel for the model's own head and
// one for trained exits, with layers from top to bottom. Empty without cells of that decoding.
std::string heat_map(const Cells& cells, const std::string& decoding) {
  const Grid grid = grid_of(cells, decoding);
  if (grid.layers.empty()) return "";
  std::string svg = open_svg(grid.panel_height() * static_cast<double>(grid.candidates.size()),
                             "match rates by layer and position, " + decoding + " decoding");
  const double beside = (kPlotWidth + kGap) / 2;
  for (const int64_t k : grid.candidates) {
    const double top = grid.panel_height() * place_of(grid.candidates, k);
    svg += panel_frame(grid, fmt::format("k = {}, the model's own head", k), 0, top);
    if (grid.trained) svg += panel_frame(grid, fmt::format("k = {}, trained exits", k), beside, top);
    for (const MatchRate& rate : cells) {
      if (rate.decoding != decoding || rate.k != k || rate.tokens == 0) continue;
      svg += cell(grid, rate, rate.trained ? beside : 0, top);
    }
  }
  return svg + "</svg>\n";
}

std::vector<std::string> decodings_of(const Cells& cells) {
  std::vector<std::string> names;
  for (const MatchRate& rate : cells) add_new(names, rate.decoding);
  return names;
}

std::string heading(const MatchRateResult& rates) {
  return fmt::format("match rates of early predictions{} ({} prompts of {}, model {})",
                     rates.name.empty() ? "" : ": " + rates.name, rates.prompts, rates.task, rates.model);
}

constexpr const char* kMatchRatesMeaning =
    "The share of new tokens that are among the k which a layer finds most likely, by position in the output: through "
    "the model's own final norm and head, and through the layer's trained exit.";

std::vector<Part> match_rate_parts(const TaskView& view, Form form) {
  std::vector<Part> parts;
  for (const MatchRateResult& rates : view.results.match_rates) {
    if (rates.task != view.task.name) continue;
    Part& part = parts.emplace_back();
    part.caption = heading(rates) + "\nmatch rates of early predictions, % of new tokens";
    part.table = totals_table(rates.cells);
    if (form == Form::kBrief) continue;
    part.notes.emplace_back(kMatchRatesMeaning);
    for (const std::string& decoding : decodings_of(rates.cells)) {
      part.figures.push_back({.caption = "Match rates of " + decoding + " decoding, in %: layers from top to bottom.",
                              .svg = heat_map(rates.cells, decoding)});
    }
  }
  return parts;
}

Table cells_table(const Cells& cells) {
  Table table({{"decoding"}, {"layer"}, {"k"}, {"head"}, {"positions"}, {"matches"}, {"tokens"}, {"rate"}});
  for (const MatchRate& rate : cells) {
    table.add_row({rate.decoding, std::to_string(rate.layer), std::to_string(rate.k), head_name(rate.trained),
                   rate.positions, std::to_string(rate.matches), std::to_string(rate.tokens),
                   rate.tokens == 0 ? "" : fmt::format("{:.6f}", rate.rate())});
  }
  return table;
}

}  // namespace

Section match_rates_section() {
  return {.title = "Match rates of early predictions", .parts = match_rate_parts};
}

void write_match_rates(const MatchRateResult& rates, const std::filesystem::path& directory) {
  std::string stem = "match_rates";
  if (!rates.name.empty()) stem.append(".").append(file_safe(rates.name));
  write_file_atomic(directory / (stem + ".csv"), cells_table(rates.cells).csv());
  for (const std::string& decoding : decodings_of(rates.cells)) {
    const std::string svg = heat_map(rates.cells, decoding);
    write_file_atomic(directory / fmt::format("{}.{}.svg", stem, file_safe(decoding)), standalone_svg(svg));
  }
}

}  // namespace draftsmith::evaluate
