// Plot of the losses of the models' training.
#include <fmt/format.h>

#include "base/plots.h"
#include "evaluate/report/sections.h"
#include "evaluate/report/training_curves.h"

namespace draftsmith::evaluate {
namespace {

// Returns a line through a curve's points; of validation with marks, since there are few of them.
PlotSeries training_series(const TrainingCurve& curve, bool validation, size_t index) {
  PlotSeries series{.name = validation ? "" : curve.model, .style = series_style(index)};
  series.line_title = curve.model + (validation ? ", validation" : ", training");
  series.line_width = validation ? 1 : 2;
  series.dashes = validation ? "2 3" : "";
  for (const auto& [step, loss] : validation ? curve.validation : curve.training) {
    series.line.push_back({step, loss, ""});
    if (!validation) continue;
    series.marks.push_back(
        {.x = step, .y = loss, .title = fmt::format("{} at step {:g}: {:.4g}", series.line_title, step, loss)});
  }
  return series;
}

std::vector<Part> training_parts(const Results& results) {
  Plot plot{.label = "losses in training", .x_title = "step", .y_title = "loss", .series = {}};
  size_t index = 0;
  for (const TrainingCurve& curve : training_curves(results)) {
    plot.series.push_back(training_series(curve, false, index));
    plot.series.push_back(training_series(curve, true, index));
    ++index;
  }
  if (plot.series.empty()) return {};
  return {{.figures = {figure_of(plot,
                                 "Lines: loss in training. Dotted, with marks: loss on validation data. Losses of "
                                 "different kinds, such as distillation and cross entropy, do not compare.")}}};
}

}  // namespace

Section training_section() {
  return {.title = "Training of the models", .shared_parts = training_parts};
}

}  // namespace draftsmith::evaluate
