// Methods inside the model (early-exit, exits as drafters, calm, ppd) in a report: layers per token, layers of exits,
// PPD's match rate and theorem, and match rates of early predictions (PPD's tables 2 and 5 to 8).
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/plots.h"
#include "base/util.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

using infer::MatchRate;

std::string whole(const std::optional<int64_t>& value) {
  return value ? std::to_string(*value) : "";
}

Table layers_table(const std::vector<const SettingResult*>& settings) {
  Table table({{"run", Align::kLeft},
               {"layers"},
               {"work"},
               {"path"},
               {"layer"},
               {"match"},
               {"units"},
               {"decode"},
               {"theorem"}});
  for (const SettingResult* setting : settings) {
    const Inside& inside = *setting->inside;
    table.add_row({setting->name, std::to_string(inside.layers), fixed(inside.layer_runs_per_token, 2),
                   fixed(inside.path_per_token, 2),
                   whole(inside.exit_layer) + fixed(inside.average_exit_layer, 2) + whole(inside.early_layer),
                   fixed(inside.match_rate, 3), fixed(inside.units_in_use, 2),
                   fixed(setting->speed.speedup_decode.value, 2), fixed(inside.theorem_speedup, 2)});
  }
  table.drop_empty_columns();
  return table;
}

constexpr const char* kLayersMeaning =
    ": layers a token: work, all that ran; path, one after the other; layer: where drafts or candidates come from, of "
    "calm the mean exit; match: how often the next token is among PPD's candidates; units: layers that run at one "
    "time, on average; theorem: Theorem 4.1's speed at that match rate, where branches and last layers share no device";

// Returns the plot of the layers where calm's tokens leave. Without calm settings it has no series.
Plot exits_plot(const std::vector<const SettingResult*>& settings) {
  Plot plot{.label = "exits by layer", .x_title = "layer", .y_title = "tokens that leave there, %", .series = {}};
  for (const SettingResult* setting : settings) {
    const std::vector<int64_t> counts = setting->inside->exit_histogram.value_or(std::vector<int64_t>());
    const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    if (total == 0) continue;
    PlotSeries series{.name = setting->name, .style = series_style(plot.series.size())};
    for (size_t i = 0; i < counts.size(); ++i) {
      const double share = 100 * static_cast<double>(counts[i]) / total;
      series.marks.push_back({.x = static_cast<double>(i + 1),
                              .y = share,
                              .title = fmt::format("{}, layer {}: {:.1f} %", setting->name, i + 1, share),
                              .key = setting->name});
    }
    series.line = series.marks;
    series.line_title = setting->name;
    plot.series.push_back(std::move(series));
  }
  return plot;
}

// Returns rates in percent: a row for each layer, k and head, and a column for each of `columns`, the values that
// `member` has in them.
Table rates_table(const std::vector<MatchRate>& cells, std::string MatchRate::*member) {
  std::vector<std::string> columns;
  std::vector<MatchRate> rows;  // the first cell of each
  const auto same_row = [](const MatchRate& a, const MatchRate& b) {
    return a.layer == b.layer && a.k == b.k && a.trained == b.trained;
  };
  for (const MatchRate& cell : cells) {
    add_new(columns, cell.*member);
    if (std::ranges::none_of(rows, [&](const MatchRate& row) { return same_row(row, cell); })) rows.push_back(cell);
  }
  std::vector<Column> headers{{"layer"}, {"k"}, {"head", Align::kLeft}};
  for (const std::string& column : columns) headers.push_back({column});
  Table table(std::move(headers));
  for (const MatchRate& row : rows) {
    std::vector<std::string> line{std::to_string(row.layer), std::to_string(row.k), row.trained ? "trained" : "own"};
    for (const std::string& column : columns) {
      const auto found = std::ranges::find_if(
          cells, [&](const MatchRate& cell) { return same_row(row, cell) && cell.*member == column; });
      const bool unknown = found == cells.end() || found->tokens == 0;
      line.push_back(unknown ? "" : fixed(100 * found->rate(), 1));
    }
    table.add_row(std::move(line));
  }
  return table;
}

// Returns a part for each decoding: a table with a column for each bin of positions.
std::vector<Part> rates_by_position(const MatchRateResult& rates) {
  std::vector<std::string> decodings;
  for (const MatchRate& cell : rates.cells) add_new(decodings, cell.decoding);
  std::vector<Part> parts;
  for (const std::string& decoding : decodings) {
    std::vector<MatchRate> cells = rates.cells;
    std::erase_if(cells, [&](const MatchRate& cell) { return cell.decoding != decoding; });
    parts.push_back({.caption = fmt::format("match rates of {} decoding by position in the output, %", decoding),
                     .table = rates_table(cells, &MatchRate::positions)});
  }
  return parts;
}

constexpr const char* kMatchRatesMeaning =
    "The share of new tokens that are among the k which a layer finds most likely: through the model's own final norm "
    "and head, and through the layer's trained exit.";

}  // namespace

std::vector<Part> layer_parts(const TaskView& view, Form form) {
  std::vector<const SettingResult*> settings;
  for (const SettingResult& setting : view.task.settings) {
    if (setting.inside) settings.push_back(&setting);
  }
  if (settings.empty()) return {};
  Part part{.caption = view.task.name + kLayersMeaning, .table = layers_table(settings)};
  const Plot exits = exits_plot(settings);
  if (form == Form::kFull && !exits.series.empty()) part.figures = {figure_of(exits, "Where calm's tokens leave.")};
  return {part};
}

std::vector<Part> match_rate_parts(const TaskView& view, Form form) {
  std::vector<Part> parts;
  for (const MatchRateResult& rates : view.results.match_rates) {
    if (rates.task != view.task.name) continue;
    Part& part = parts.emplace_back();
    part.caption = fmt::format(
        "match rates of early predictions{} ({} prompts of {}, model {})\n"
        "match rates of early predictions, % of new tokens",
        rates.name.empty() ? "" : ": " + rates.name, rates.prompts, rates.task, rates.model);
    std::vector<MatchRate> totals = rates.cells;
    std::erase_if(totals, [](const MatchRate& cell) { return cell.positions != "total"; });
    part.table = rates_table(totals, &MatchRate::decoding);
    if (form == Form::kBrief) continue;
    part.notes.emplace_back(kMatchRatesMeaning);
    for (Part& more : rates_by_position(rates)) parts.push_back(std::move(more));
  }
  return parts;
}

}  // namespace draftsmith::evaluate
