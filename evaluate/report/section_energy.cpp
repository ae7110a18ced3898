// Table of the energy that a token of each setting took, where the machine's counters can be read.
#include <cmath>

#include <fmt/format.h>

#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

std::string ratio_text(const SettingResult& setting) {
  if (!setting.speed.joules_ratio) return "";
  const Ratio& ratio = *setting.speed.joules_ratio;
  const std::string text = fixed(ratio.value, 2);
  const double half = (ratio.interval.high - ratio.interval.low) / 2;
  return text.empty() || !std::isfinite(half) ? text : fmt::format("{} ±{:.2f}", text, half);
}

std::vector<Part> energy_parts(const TaskView& view, Form form) {
  const bool full = form == Form::kFull;
  Table table({{full ? "setting" : "run", Align::kLeft},
               {full ? "joules a token" : "J/token"},
               {full ? "over the baseline's" : "J x", Align::kRight, "energy of a token over that of the baseline"}});
  for (const SettingResult* setting : view.task.rows()) {
    const auto& joules = setting->speed.joules_per_token;
    if (!joules || !std::isfinite(*joules)) continue;
    table.add_row({setting->name, fmt::format("{:#.4g}", *joules), ratio_text(*setting)});
  }
  if (table.empty()) return {};
  return {{.caption = fmt::format("{}Energy of a new token on the timed lines, by the counters of {}. They count whole "
                                  "packages and GPUs, idle power and other processes included.",
                                  full ? "" : view.task.name + ": ",
                                  view.results.environment_text("energy").value_or("the machine")),
           .table = std::move(table)}};
}

nlohmann::ordered_json joules(const TaskView& /*view*/, const SettingResult& setting) {
  return csv_number(setting.speed.joules_per_token);
}

nlohmann::ordered_json joules_ratio(const TaskView& /*view*/, const SettingResult& setting) {
  return setting.speed.joules_ratio ? csv_number(setting.speed.joules_ratio->value) : nlohmann::ordered_json();
}

}  // namespace

Section energy_section() {
  return {.title = "Energy",
          .parts = energy_parts,
          .csv = {{"joules_per_token", joules}, {"joules_ratio", joules_ratio}},
          .request = Request::kLatency};
}

}  // namespace draftsmith::evaluate
