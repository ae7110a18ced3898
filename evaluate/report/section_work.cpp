// Operations, bytes and arithmetic intensity of each setting beside greedy decoding (BiLD's figure 8, Kim et al. 2023;
// Leviathan et al. 2023, theorem 3.11): a table, and the settings below the slope that greedy decoding's bytes give.
#include <algorithm>

#include <fmt/format.h>

#include "base/plots.h"
#include "evaluate/report/sections.h"
#include "evaluate/report/setting_names.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

constexpr double kMillion = 1e6;
constexpr double kBillion = 1e9;

std::vector<const SettingResult*> counted_settings(const TaskResult& task) {
  std::vector<const SettingResult*> settings;
  for (const SettingResult* setting : task.rows()) {
    if (setting->work && !setting->repeats) settings.push_back(setting);
  }
  return settings;
}

Table work_table(const std::vector<const SettingResult*>& settings) {
  Table table({{"run", Align::kLeft},
               {"MFLOP", Align::kRight, "operations for a new token, encoders and prompts included"},
               {"MB", Align::kRight, "bytes of weights, keys and values read for a new token"},
               {"FLOP/B", Align::kRight, "operations for each byte: the arithmetic intensity"},
               {"FLOP x", Align::kRight, "operations over those of greedy decoding"},
               {"MB x", Align::kRight, "bytes over those of greedy decoding"},
               {"FLOP/B x", Align::kRight, "intensity over that of greedy decoding"},
               {"decode x", Align::kRight, "operations over greedy decoding's, without encoders and prompts"},
               {"theory x", Align::kRight, "the same by Leviathan et al., theorem 3.11, at the measured alpha"}});
  for (const SettingResult* setting : settings) {
    const WorkResult& work = *setting->work;
    table.add_row({setting->name, fixed(work.operations / kMillion, 3), fixed(work.bytes / kMillion, 3),
                   fixed(work.intensity(), 2), fixed(work.operations_ratio, 2), fixed(work.bytes_ratio, 2),
                   fixed(work.intensity_ratio, 2), fixed(work.decode_operations_ratio, 2),
                   fixed(work.theory_operations_ratio, 2)});
  }
  table.drop_empty_columns();
  return table;
}

// Returns the operations a second that a setting attained, in billions; 0 if it was not timed.
double attained(const SettingResult& setting) {
  const double rate = setting.work->operations * setting.speed.tokens_per_second / kBillion;
  return rate > 0 ? rate : 0;
}

// Returns the plot of attained operations against intensity. Its slope is what memory gave greedy decoding: a setting
// on it reads as many bytes a second.
Plot work_plot(const TaskResult& task, const std::vector<const SettingResult*>& settings) {
  Plot plot{.label = "operations a second against operations for each byte",
            .x_title = "operations for each byte read",
            .y_title = "billion operations a second",
            .series = {}};
  const auto names = short_names(task);
  double widest = 0;
  for (const SettingResult* setting : settings) {
    const double rate = attained(*setting);
    if (rate == 0) continue;
    const double intensity = setting->work->intensity();
    widest = std::max(widest, intensity);
    auto found = std::ranges::find(plot.series, setting->method, &PlotSeries::name);
    if (found == plot.series.end()) {
      found = plot.series.insert(found, {.name = setting->method, .style = series_style(plot.series.size())});
    }
    const auto name = names.find(setting->name);
    found->marks.push_back({.x = intensity,
                            .y = rate,
                            .title = fmt::format("{}: {:.3g} operations for each byte, {:.3g} billion a second, "
                                                 "{:.3g} billion bytes a second",
                                                 setting->name, intensity, rate, rate / intensity),
                            .label = name == names.end() ? setting->name : name->second,
                            .key = setting->name});
  }
  const SettingResult& greedy = task.baseline;
  if (plot.series.empty() || !greedy.work || attained(greedy) == 0) return plot;
  const double slope = attained(greedy) / greedy.work->intensity();  // billion bytes a second
  PlotSeries line{.name = "", .style = kInk, .line = {{0, 0, ""}, {widest, slope * widest, ""}}};
  line.line_title = fmt::format("greedy decoding's {:.3g} billion bytes a second", slope);
  line.line_width = 1;
  line.dashes = "2 3";
  plot.series.push_back(std::move(line));
  return plot;
}

constexpr const char* kWorkMeaning =
    "operations and bytes for a new token, counted from shapes and runs: products and attention; weights once a step, "
    "keys and values";
constexpr const char* kMoreOfWork =
    "; x: over greedy decoding's; decode: without encoders and prompts; theory: Leviathan et al.'s theorem 3.11 for "
    "fixed windows.";
constexpr const char* kSlopeMeaning =
    "Attained operations a second against operations for each byte. On the dashed slope a setting reads as many bytes "
    "a "
    "second as greedy decoding does; below it, time goes elsewhere. Higher intensity alone makes nothing faster: "
    "rejected drafts are operations too.";

std::vector<Part> work_parts(const TaskView& view, Form form) {
  const auto settings = counted_settings(view.task);
  if (settings.empty()) return {};
  const bool full = form == Form::kFull;
  std::vector<Part> parts{
      {.caption = full ? std::string(kWorkMeaning) + kMoreOfWork : view.task.name + ": " + kWorkMeaning,
       .table = work_table(settings)}};
  if (!full) return parts;
  const Plot plot = work_plot(view.task, settings);
  if (!plot.series.empty()) parts.push_back({.figures = {figure_of(plot, kSlopeMeaning)}});
  return parts;
}

// Returns the column of a member of WorkResult.
template <auto kMember>
CsvColumn work_column(const std::string& header) {
  return {header, [](const TaskView&, const SettingResult& row) {
            return row.work ? csv_number((*row.work).*kMember) : ordered_json();
          }};
}

}  // namespace

Section work_section() {
  return {.title = "Operations and bytes",
          .parts = work_parts,
          .csv = {work_column<&WorkResult::operations>("operations_per_token"),
                  work_column<&WorkResult::bytes>("bytes_per_token"),
                  {"intensity",
                   [](const TaskView&, const SettingResult& row) {
                     return row.work ? csv_number(row.work->intensity()) : ordered_json();
                   }},
                  work_column<&WorkResult::operations_ratio>("operations_ratio"),
                  work_column<&WorkResult::bytes_ratio>("bytes_ratio"),
                  work_column<&WorkResult::intensity_ratio>("intensity_ratio"),
                  work_column<&WorkResult::decode_operations_ratio>("decode_operations_ratio"),
                  work_column<&WorkResult::theory_operations_ratio>("theory_operations_ratio"),
                  work_column<&WorkResult::drafter_operations_ratio>("drafter_operations_ratio")}};
}

}  // namespace draftsmith::evaluate
