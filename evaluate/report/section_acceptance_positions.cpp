// Plot of the acceptance rate by a token's place in its draft.
#include <cmath>

#include <fmt/format.h>

#include "base/plot.h"
#include "evaluate/report/sections.h"
#include "evaluate/report/setting_names.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kMostLines = 8;  // colours of series_style()

bool has_positions(const SettingResult& setting) {
  return setting.acceptance.acceptance_by_position.size() > 1;
}

PlotSeries position_series(const SettingResult& setting, const std::string& name, size_t index) {
  PlotSeries series{.name = name, .style = series_style(index)};
  series.line_title = setting.name;
  series.line_width = 1.5;
  double position = 0;
  for (const double rate : setting.acceptance.acceptance_by_position) {
    ++position;
    if (!std::isfinite(rate)) continue;
    series.marks.push_back({.x = position,
                            .y = rate,
                            .title = fmt::format("{}: token {:g} kept in {:.1f} %", setting.name, position, 100 * rate),
                            .key = setting.name});
    series.line.push_back({position, rate, ""});
  }
  return series;
}

std::vector<Part> position_parts(const TaskView& view, Form form) {
  if (form == Form::kBrief) return {};
  Plot plot{.label = "acceptance by position",
            .x_title = "place in the draft",
            .y_title = "share kept, where all tokens before it were",
            .series = {}};
  const auto names = short_names(view.task);
  for (const SettingResult* setting : fastest_settings(view.task, kMostLines, has_positions)) {
    plot.series.push_back(position_series(*setting, names.at(setting->name), plot.series.size()));
  }
  if (plot.series.empty()) return {};
  return {{.figures = {figure_of(plot,
                                 "How often a drafted token is kept, by its place in the draft. Few drafts reach "
                                 "the last places, so lines are less certain there." +
                                     left_out_words(view.task, kMostLines, has_positions))}}};
}

}  // namespace

Section acceptance_positions_section() {
  return {.title = "Acceptance by position", .parts = position_parts};
}

}  // namespace draftsmith::evaluate
