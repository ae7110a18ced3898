// Plot of the time that each setting spends in each phase.
#include <array>

#include <fmt/format.h>

#include "base/plots.h"
#include "evaluate/report/sections.h"
#include "evaluate/report/setting_names.h"

namespace draftsmith::evaluate {
namespace {

struct Phase {
  const char* name;
  double infer::PhaseSeconds::*seconds;
};
constexpr std::array kPhases{Phase{"verify", &infer::PhaseSeconds::verify}, Phase{"draft", &infer::PhaseSeconds::draft},
                             Phase{"encode", &infer::PhaseSeconds::encode},
                             Phase{"prefill", &infer::PhaseSeconds::prefill},
                             Phase{"other", &infer::PhaseSeconds::other}};
constexpr size_t kMostBars = 40;

bool is_timed(const SettingResult& setting) {
  return setting.speed.ms_per_token > 0 && setting.speed.tokens > 0;
}

Bar phase_bar(const SettingResult& setting, const std::string& name) {
  Bar bar{
      .name = name, .values = {}, .total = fmt::format("{:.3g} ms", setting.speed.ms_per_token), .key = setting.name};
  for (const Phase& phase : kPhases) {
    bar.values.push_back(1000 * setting.speed.seconds.*phase.seconds / static_cast<double>(setting.speed.tokens));
  }
  return bar;
}

std::vector<Part> phase_parts(const TaskView& view, Form form) {
  if (form == Form::kBrief) return {};
  BarPlot plot{.label = "milliseconds per token by phase", .unit = "ms per token", .parts = {}, .bars = {}};
  for (const Phase& phase : kPhases) plot.parts.emplace_back(phase.name);
  const auto names = short_names(view.task);
  for (const SettingResult* setting : fastest_settings(view.task, kMostBars, is_timed)) {
    plot.bars.push_back(phase_bar(*setting, names.at(setting->name)));
  }
  if (plot.bars.empty()) return {};
  return {{.figures = {figure_of(plot,
                                 "Milliseconds per new token: the target's runs over drafts or single tokens "
                                 "(verify), the drafter's steps (draft), the encoder, the prompt (prefill), and "
                                 "the rest." +
                                     left_out_words(view.task, kMostBars, is_timed))}}};
}

template <double infer::PhaseSeconds::*kSeconds>
nlohmann::ordered_json seconds(const TaskView& /*view*/, const SettingResult& setting) {
  return csv_number(setting.speed.seconds.*kSeconds);
}

}  // namespace

Section phases_section() {
  return {.title = "Where the time goes",
          .parts = phase_parts,
          .csv = {{"seconds_encode", seconds<&infer::PhaseSeconds::encode>},
                  {"seconds_prefill", seconds<&infer::PhaseSeconds::prefill>},
                  {"seconds_draft", seconds<&infer::PhaseSeconds::draft>},
                  {"seconds_verify", seconds<&infer::PhaseSeconds::verify>},
                  {"seconds_other", seconds<&infer::PhaseSeconds::other>}}};
}

}  // namespace draftsmith::evaluate
