// Histograms of the number of drafted tokens kept per verification, one for each setting.
#include <numeric>

#include "base/plots.h"
#include "evaluate/report/sections.h"
#include "evaluate/report/setting_names.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kMostPanels = 24;

int64_t verifications(const SettingResult& setting) {
  const auto& counts = setting.acceptance.accepted_histogram;
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

bool verifies(const SettingResult& setting) {
  return verifications(setting) > 0;
}

std::vector<Part> histogram_parts(const TaskView& view, Form form) {
  if (form == Form::kBrief) return {};
  ColumnPlot plot{.label = "accepted lengths", .x_title = "tokens kept", .panels = {}};
  const auto names = short_names(view.task);
  for (const SettingResult* setting : fastest_settings(view.task, kMostPanels, verifies)) {
    ColumnPanel& panel = plot.panels.emplace_back();
    panel.name = names.at(setting->name);
    panel.key = setting->name;
    for (const int64_t count : setting->acceptance.accepted_histogram) {
      panel.shares.push_back(static_cast<double>(count) / static_cast<double>(verifications(*setting)));
    }
  }
  if (plot.panels.empty()) return {};
  return {{.figures = {figure_of(
               plot, "How many drafted tokens (0, 1, 2, …) a run of the target keeps, as shares of its runs." +
                         left_out_words(view.task, kMostPanels, verifies))}}};
}

}  // namespace

Section accepted_lengths_section() {
  return {.title = "Accepted lengths", .parts = histogram_parts};
}

}  // namespace draftsmith::evaluate
