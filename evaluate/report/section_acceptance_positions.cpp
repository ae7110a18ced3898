// Plot of the acceptance rate by a token's place in its draft.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "base/plots.h"
#include "evaluate/report/sections.h"
#include "evaluate/report/setting_names.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kMostLines = 8;       // colours of series_style()
constexpr int64_t kFewestDrafts = 20;  // that reach a place, or its rate says little

bool has_positions(const SettingResult& setting) {
  return setting.acceptance.acceptance_by_position.size() > 1;
}

// Returns how many drafts had all tokens before a place (from 1) kept; more than were judged there.
int64_t drafts_reaching(const SettingResult& setting, size_t place) {
  const auto& counts = setting.acceptance.accepted_histogram;
  const size_t before = std::min(place - 1, counts.size());
  return std::accumulate(counts.begin() + static_cast<std::ptrdiff_t>(before), counts.end(), int64_t{0});
}

PlotSeries position_series(const SettingResult& setting, const std::string& name, size_t index) {
  PlotSeries series{.name = name, .style = series_style(index)};
  series.line_title = setting.name;
  series.line_width = 1.5;
  const auto& rates = setting.acceptance.acceptance_by_position;
  for (size_t place = 1; place <= rates.size() && drafts_reaching(setting, place) >= kFewestDrafts; ++place) {
    const double rate = rates[place - 1];
    const auto position = static_cast<double>(place);
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
                                 "How often a drafted token is kept, by its place in the draft. Places that "
                                 "fewer than 20 drafts reach are left out." +
                                     left_out_words(view.task, kMostLines, has_positions))}}};
}

}  // namespace

Section acceptance_positions_section() {
  return {.title = "Acceptance by position", .parts = position_parts};
}

}  // namespace draftsmith::evaluate
