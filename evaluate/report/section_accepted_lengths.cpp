// Histograms of the number of drafted tokens kept per verification, one for each setting.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/svg.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {

namespace {

std::string histogram(const SettingResult& setting, double top) {
  const auto& counts = setting.acceptance.accepted_histogram;
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  if (total == 0) return "";
  const double bar = std::min(40.0, (kPlotWidth - 80) / static_cast<double>(counts.size()));
  std::string svg = svg_text(8, top + 14, setting.name);
  for (size_t length = 0; length < counts.size(); ++length) {
    const double share = static_cast<double>(counts[length]) / total;
    const double left = 60 + bar * static_cast<double>(length);
    svg += svg_box({left, top + 72 - 50 * share, bar - 3, 50 * share}, "#3a76b1",
                   fmt::format("{} accepted: {:.1f} %", length, 100 * share));
    svg += svg_text(left + bar / 2 - 1, top + 84, std::to_string(length), "middle");
  }
  return svg;
}

std::vector<Part> histogram_parts(const TaskView& view, Form form) {
  if (form == Form::kBrief) return {};
  std::string svg;
  double top = 0;
  for (const SettingResult* setting : view.task.rows()) {
    const std::string panel = histogram(*setting, top);
    svg += panel;
    if (!panel.empty()) top += 98;
  }
  if (svg.empty()) return {};
  return {{.plots = {open_svg(top, "accepted lengths") + svg + "</svg>\n"}}};
}

}  // namespace

Section accepted_lengths_section() {
  return {.title = "Accepted lengths", .parts = histogram_parts};
}

}  // namespace draftsmith::evaluate
