// Methods inside the model (early-exit, exits as drafters, calm, ppd): layers per token, layers of exits and early
// predictions, and PPD's match rate, theorem and speed on one device.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/plots.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

std::vector<const SettingResult*> inside_settings(const TaskResult& task) {
  std::vector<const SettingResult*> settings;
  for (const SettingResult& setting : task.settings) {
    if (setting.inside) settings.push_back(&setting);
  }
  return settings;
}

std::string number(const std::optional<int64_t>& value) {
  return value ? std::to_string(*value) : "";
}

void add_row(const SettingResult& setting, Table& table) {
  const Inside& inside = *setting.inside;
  table.add_row({setting.name, std::to_string(inside.layers), fixed(inside.layer_runs_per_token, 2),
                 fixed(inside.path_per_token, 2),
                 number(inside.exit_layer) + fixed(inside.average_exit_layer, 2) + number(inside.early_layer),
                 fixed(inside.match_rate, 3), fixed(inside.units_in_use, 2),
                 fixed(setting.speed.speedup_decode.value, 2),
                 inside.theorem ? fixed(inside.theorem->speedup, 2) : ""});
}

constexpr const char* kInsideMeaning =
    "layers a token: work, all that ran; path, one after the other; layer: where drafts or candidates come from, of "
    "calm the mean exit";
constexpr const char* kMoreMeaning =
    "; match: how often the next token is among PPD's candidates; units: layers that run at one time, on average; "
    "theorem: Theorem 4.1's speed at that match rate.";

// Returns a comparison of the theorem's gain with the measured one; empty for settings without a theorem.
std::string ppd_words(const SettingResult& setting) {
  const Inside& inside = *setting.inside;
  if (!inside.theorem) return "";
  const double decode = setting.speed.speedup_decode.value;
  std::string text = fmt::format(
      "{}: at its match rate of {} Theorem 4.1 promises {} times greedy decoding's speed with {} units in use; "
      "measured on this one device {:.2f}, with {} units",
      setting.name, fixed(inside.match_rate, 3), fixed(inside.theorem->speedup, 2),
      fixed(inside.theorem->units_in_use, 2), decode, fixed(inside.units_in_use, 2));
  text += decode <= 1 ? ": it shows none of that gain, because branches and last layers share the device." : ".";
  return text;
}

// Returns a row of the plot of exits: the share of tokens that left at each layer.
std::string exits_row(const SettingResult& setting, double top, bool with_layers) {
  constexpr double kLeft = 260;
  constexpr double kRow = 20;
  const std::vector<int64_t>& counts = *setting.inside->exit_histogram;
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  const double width = std::min(60.0, (kPlotWidth - kLeft - 10) / static_cast<double>(counts.size()));
  std::string svg = svg_text(kLeft - 6, top + 14, setting.name, "end");
  for (size_t i = 0; i < counts.size(); ++i) {
    const double share = static_cast<double>(counts[i]) / total;
    const double left = kLeft + width * static_cast<double>(i);
    if (with_layers) svg += svg_text(left + width / 2, 14, std::to_string(i + 1), "middle");
    svg += svg_box({left, top, width - 2, kRow - 2}, series_style(0),
                   fmt::format("layer {}: {:.1f} %", i + 1, 100 * share), share);
    svg += svg_text(left + width / 2, top + 14, fmt::format("{:.0f}", 100 * share), "middle");
  }
  return svg;
}

// Returns the plot of the layers where calm's tokens leave, a row for each setting. Empty without calm settings.
std::string exits_svg(const std::vector<const SettingResult*>& settings) {
  std::string body;
  double top = 20;
  for (const SettingResult* setting : settings) {
    const auto& counts = setting->inside->exit_histogram;
    if (!counts || std::accumulate(counts->begin(), counts->end(), int64_t{0}) == 0) continue;
    body += exits_row(*setting, top, body.empty());
    top += 20;
  }
  return body.empty() ? "" : open_svg(top + 6, "exits by layer") + body + "</svg>\n";
}

std::vector<Part> inside_parts(const TaskView& view, Form form) {
  const auto settings = inside_settings(view.task);
  if (settings.empty()) return {};
  const bool full = form == Form::kFull;
  Part part{.caption = full ? std::string(kInsideMeaning) + kMoreMeaning : view.task.name + ": " + kInsideMeaning,
            .table = Table({{"run", Align::kLeft},
                            {"layers"},
                            {"work"},
                            {"path"},
                            {"layer"},
                            {"match"},
                            {"units"},
                            {"decode"},
                            {"theorem"}})};
  for (const SettingResult* setting : settings) {
    add_row(*setting, part.table);
    const std::string words = ppd_words(*setting);
    if (!words.empty()) part.notes.push_back((full ? "" : "  ") + words);
  }
  part.table.drop_empty_columns();
  const std::string exits = full ? exits_svg(settings) : "";
  if (exits.empty()) return {part};
  return {part, {.figures = {{.caption = "Where calm's tokens leave (%)", .svg = exits}}}};
}

// Returns the column of a member of Inside.
template <auto kMember>
CsvColumn inside_column(const std::string& header) {
  return {header, [](const TaskView&, const SettingResult& row) {
            if (!row.inside) return ordered_json();
            const auto& value = (*row.inside).*kMember;
            if constexpr (std::is_same_v<decltype(kMember), std::optional<int64_t> Inside::*>) {
              return value ? ordered_json(*value) : ordered_json();
            } else {
              return csv_number(value);
            }
          }};
}

}  // namespace

Section inside_section() {
  return {.title = "Inside the model",
          .parts = inside_parts,
          .csv = {inside_column<&Inside::layer_runs_per_token>("layer_runs_per_token"),
                  inside_column<&Inside::path_per_token>("path_per_token"),
                  inside_column<&Inside::exit_layer>("exit_layer"),
                  inside_column<&Inside::average_exit_layer>("average_exit_layer"),
                  inside_column<&Inside::early_layer>("early_layer"),
                  inside_column<&Inside::candidates>("candidates"),
                  inside_column<&Inside::match_rate>("match_rate"),
                  inside_column<&Inside::units_in_use>("units_in_use"),
                  {"theorem_speedup", [](const TaskView&, const SettingResult& row) {
                     return row.inside && row.inside->theorem ? csv_number(row.inside->theorem->speedup)
                                                              : ordered_json();
                   }}}};
}

}  // namespace draftsmith::evaluate
