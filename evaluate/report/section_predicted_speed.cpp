// Plot of measured speed against what theory predicts, and against what the counted runs explain.
#include <cmath>

#include <fmt/format.h>

#include "base/plots.h"
#include "evaluate/report/sections.h"
#include "evaluate/report/setting_names.h"

namespace draftsmith::evaluate {
namespace {

// Adds a setting's measured speedup over an expected one.
void add_point(const SettingResult& setting, const std::string& label, double expected, PlotSeries& series) {
  const double measured = setting.speed.speedup_decode.value;
  if (!std::isfinite(expected) || !std::isfinite(measured)) return;
  series.marks.push_back({.x = expected,
                          .y = measured,
                          .title = fmt::format("{}: {:.2f} × {}, {:.2f} × measured ({:+.0f} %)", setting.name, expected,
                                               series.name, measured, 100 * (measured / expected - 1)),
                          .label = label,
                          .key = setting.name});
}

std::vector<Part> speed_parts(const TaskView& view, Form form) {
  if (form == Form::kBrief) return {};
  PlotSeries predicted{.name = "predicted by theory", .style = series_style(0)};
  PlotSeries accounted{.name = "explained by counted runs", .style = series_style(1)};
  accounted.style.filled = false;
  const auto names = short_names(view.task);
  for (const SettingResult& setting : view.task.settings) {
    const std::string& name = names.at(setting.name);
    if (setting.predicted) add_point(setting, name, setting.predicted->speedup, predicted);
    const std::string label = setting.predicted ? "" : name;  // one label a setting
    if (setting.accounted) add_point(setting, label, setting.accounted->speedup, accounted);
  }
  if (predicted.marks.empty() && accounted.marks.empty()) return {};
  Plot plot{.label = "measured against predicted speedup",
            .x_title = "expected speedup",
            .y_title = "measured speedup, without encoder and prompt",
            .series = {},
            .diagonal = true};
  for (PlotSeries* series : {&predicted, &accounted}) {
    if (!series->marks.empty()) plot.series.push_back(std::move(*series));
  }
  return {{.figures = {figure_of(plot,
                                 "On the line, measurement and expectation agree; below it, time went into what "
                                 "the expectation leaves out. Theory predicts from acceptance and step times; "
                                 "the other marks take the runs as they were counted.")}}};
}

}  // namespace

Section predicted_speed_section() {
  return {.title = "Predicted and measured speed", .parts = speed_parts};
}

}  // namespace draftsmith::evaluate
