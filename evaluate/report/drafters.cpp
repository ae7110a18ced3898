// Drafters in a report: cost, forced alpha and quality of predictions, teacher-forced on a task's texts (Nair et al.
// 2024, table 1), and the acceptance rate by a token's place in its draft.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "base/plots.h"
#include "base/util.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

// Returns the value of that name, or nullptr.
template <class T>
const T* find_named(const Named<T>& values, const std::string& name) {
  const auto found = std::ranges::find(values, name, [](const auto& one) { return one.first; });
  return found == values.end() ? nullptr : &found->second;
}

constexpr size_t kMostPositionLines = 8;  // colours of series_style()
constexpr int64_t kFewestDrafts = 20;     // that reach a place, or its rate says little

bool has_positions(const SettingResult& setting) {
  return setting.acceptance.acceptance_by_position.size() > 1;
}

// Returns how many drafts had all tokens before a place (from 1) kept; more than were judged there.
int64_t drafts_reaching(const SettingResult& setting, size_t place) {
  const auto& counts = setting.acceptance.accepted_histogram;
  const size_t before = std::min(place - 1, counts.size());
  return std::accumulate(counts.begin() + static_cast<std::ptrdiff_t>(before), counts.end(), int64_t{0});
}

PlotSeries position_series(const SettingResult& setting, size_t index) {
  PlotSeries series{.name = setting.name, .style = series_style(index)};
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

// Returns the table of the target and the drafters, with what is known of each.
Table drafter_table(const TaskResult& task) {
  const Named<PredictionResult> models = task.prediction ? task.prediction->models : Named<PredictionResult>();
  std::vector<std::string> names;
  for (const auto& [name, model] : models) add_new(names, name);
  for (const auto& [name, drafter] : task.drafters) add_new(names, name);
  Table table({{"model", Align::kLeft},
               {"cost ratio", Align::kRight, "c: time of a drafter's step over the target's"},
               {"alpha T0", Align::kRight, "alpha_forced at temperature 0, on greedy outputs"},
               {"alpha T1", Align::kRight, "alpha_forced at temperature 1, on sampled outputs"},
               {"accuracy", Align::kRight, "share of tokens that the model finds most likely"},
               {"cross entropy", Align::kRight, "nats a token"},
               {"rel. accuracy", Align::kRight, "share of tokens on which drafter and target agree"},
               {"rel. TV", Align::kRight, "total variation between drafter and target"}});
  for (const std::string& name : names) {
    const DrafterResult* drafter = find_named(task.drafters, name);
    const PredictionResult* found = find_named(models, name);
    const PredictionResult model = found == nullptr ? PredictionResult{.accuracy = NAN, .cross_entropy = NAN} : *found;
    const auto alpha = drafter == nullptr ? std::nullopt : drafter->alpha_forced;
    table.add_row({name, drafter == nullptr ? "" : fixed(drafter->cost_ratio, 3),
                   alpha ? fixed(alpha->temperature_0, 3) : "", alpha ? fixed(alpha->temperature_1, 3) : "",
                   fixed(model.accuracy, 3), fixed(model.cross_entropy, 3), fixed(model.relative_accuracy, 3),
                   fixed(model.relative_tv, 3)});
  }
  table.drop_empty_columns();
  return table;
}

}  // namespace

std::vector<Part> drafter_parts(const TaskView& view, Form /*form*/) {
  const TaskResult& task = view.task;
  if (!task.prediction && task.drafters.empty()) return {};
  Part part{.caption = task.name + ": drafters", .table = drafter_table(task)};
  if (task.prediction) {
    part.caption += fmt::format("; next tokens of {} {} ({} positions), teacher-forced", task.prediction->lines,
                                task.prediction->texts, task.prediction->positions);
  }
  return {part};
}

std::vector<Part> position_parts(const TaskView& view, Form form) {
  const ShownSettings shown = fastest_settings(view.task, kMostPositionLines, has_positions);
  if (form == Form::kBrief || shown.settings.empty()) return {};
  Plot plot{.label = "acceptance by position",
            .x_title = "place in the draft",
            .y_title = "share kept, where all tokens before it were",
            .series = {}};
  for (const SettingResult* setting : shown.settings) {
    plot.series.push_back(position_series(*setting, plot.series.size()));
  }
  return {{.figures = {figure_of(plot,
                                 "How often a drafted token is kept, by its place in the draft. Places that "
                                 "fewer than 20 drafts reach are left out." +
                                     shown.left_out)}}};
}

}  // namespace draftsmith::evaluate
