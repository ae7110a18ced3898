// Plot of the time that each setting spends in each phase.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/svg.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

struct PhaseStyle {
  const char* name;
  double infer::PhaseSeconds::*seconds;
  const char* color;
};
constexpr std::array kPhases{PhaseStyle{"encode", &infer::PhaseSeconds::encode, "#7a8b99"},
                             PhaseStyle{"prefill", &infer::PhaseSeconds::prefill, "#b0bec5"},
                             PhaseStyle{"draft", &infer::PhaseSeconds::draft, "#e8963e"},
                             PhaseStyle{"verify", &infer::PhaseSeconds::verify, "#3a76b1"},
                             PhaseStyle{"other", &infer::PhaseSeconds::other, "#9b9b9b"}};
constexpr double kLeft = 260;
constexpr double kBarRow = 22;

std::string phase_legend(double top) {
  std::string svg;
  double left = kLeft;
  for (const PhaseStyle& phase : kPhases) {
    svg += svg_box({left, top, 10, 10}, phase.color, phase.name) + svg_text(left + 14, top + 9, phase.name);
    left += 80;
  }
  return svg;
}

// Returns the bar of a setting: milliseconds per token by phase. `longest` is the longest bar's milliseconds.
std::string phase_bar(const SettingResult& setting, double top, double longest) {
  const SpeedResult& speed = setting.speed;
  const double tokens = std::max(static_cast<double>(speed.tokens), 1.0);
  std::string svg = svg_text(kLeft - 6, top + 14, setting.name, "end");
  double left = kLeft;
  for (const PhaseStyle& phase : kPhases) {
    const double milliseconds = 1000 * speed.seconds.*phase.seconds / tokens;
    const double width = milliseconds / longest * (kPlotWidth - kLeft - 70);
    svg += svg_box({left, top + 2, width, kBarRow - 6}, phase.color,
                   fmt::format("{}: {:.3f} ms per token", phase.name, milliseconds));
    left += width;
  }
  return svg + svg_text(left + 4, top + 14, fmt::format("{:.2f} ms", speed.ms_per_token));
}

std::vector<Part> phase_parts(const TaskView& view, Form form) {
  if (form == Form::kBrief) return {};
  double longest = 0;
  for (const SettingResult* setting : view.task.rows()) longest = std::max(longest, setting->speed.ms_per_token);
  if (!(longest > 0)) return {};
  std::string svg;
  double top = 0;
  for (const SettingResult* setting : view.task.rows()) {
    if (!(setting->speed.ms_per_token > 0)) continue;
    svg += phase_bar(*setting, top, longest);
    top += kBarRow;
  }
  return {{.plots = {open_svg(top + 30, "time by phase") + svg + phase_legend(top + 10) + "</svg>\n"}}};
}

template <double infer::PhaseSeconds::*kSeconds>
nlohmann::ordered_json seconds(const TaskView& /*view*/, const SettingResult& setting) {
  return csv_number(setting.speed.seconds.*kSeconds);
}

}  // namespace

Section phases_section() {
  return {.title = "Time per token, by phase",
          .parts = phase_parts,
          .csv = {{"seconds_encode", seconds<&infer::PhaseSeconds::encode>},
                  {"seconds_prefill", seconds<&infer::PhaseSeconds::prefill>},
                  {"seconds_draft", seconds<&infer::PhaseSeconds::draft>},
                  {"seconds_verify", seconds<&infer::PhaseSeconds::verify>},
                  {"seconds_other", seconds<&infer::PhaseSeconds::other>}}};
}

}  // namespace draftsmith::evaluate
