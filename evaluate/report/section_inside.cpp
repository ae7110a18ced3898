#include "evaluate/report/section_inside.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/html.h"
#include "base/svg.h"
#include "evaluate/report/run_table.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

std::vector<const ordered_json*> inside_runs(const ordered_json& task) {
  std::vector<const ordered_json*> runs;
  for (const auto& run : task.at("runs")) {
    if (run.contains("inside")) runs.push_back(&run);
  }
  return runs;
}

std::string at(const ordered_json& json, const std::string& pointer, int digits) {
  const ordered_json::json_pointer path(pointer);
  return json.contains(path) ? fixed(json.at(path), digits) : "";
}

const std::vector<Column>& columns() {
  static const std::vector<Column> kAll{
      {"run", Align::kLeft}, {"layers"},   {"work"},     {"path"}, {"layer"}, {"match"}, {"units"}, {"decode"},
      {"theorem"},           {"k+1 dev."}, {"pays from"}};
  return kAll;
}

// How decoding without encoder and prefill went on k + 1 devices, in simulation.
std::string on_all_devices(const ordered_json& inside) {
  if (!inside.contains("simulation")) return "";
  return fixed(inside.at("simulation").at("speedup_by_devices").back(), 2);
}

std::string pays_from(const ordered_json& inside) {
  if (!inside.contains("simulation")) return "";
  const auto& devices = inside.at("simulation").at("pays_from_devices");
  return devices.is_null() ? "never" : devices.dump();
}

std::vector<std::string> row_of(const ordered_json& run) {
  const ordered_json& inside = run.at("inside");
  std::string layer =
      at(inside, "/exit_layer", 0) + at(inside, "/average_exit_layer", 2) + at(inside, "/early_layer", 0);
  return {run.at("name"),
          inside.at("layers").dump(),
          at(inside, "/layer_runs_per_token", 2),
          at(inside, "/path_per_token", 2),
          std::move(layer),
          at(inside, "/match_rate", 3),
          at(inside, "/units_in_use", 2),
          at(run, "/speed/speedup_decode", 2),
          at(inside, "/theorem/speedup", 2),
          on_all_devices(inside),
          pays_from(inside)};
}

constexpr const char* kMeaning =
    "layers a token: work, all that ran; path, one after the other; layer: where drafts or candidates come from, of "
    "calm the mean exit";

// What became of the theorem's gain.
std::string ppd_words(const ordered_json& run) {
  const ordered_json& inside = run.at("inside");
  if (!inside.contains("theorem")) return "";
  const double decode = run.at("speed").at("speedup_decode");
  const std::string theorem = at(inside, "/theorem/speedup", 2);
  std::string text = fmt::format(
      "{}: at its match rate of {} Theorem 4.1 promises {} times greedy decoding's speed with {} units in use; "
      "measured on this one device {:.2f}, with {} units",
      run.at("name").get<std::string>(), at(inside, "/match_rate", 3), theorem, at(inside, "/theorem/units_in_use", 2),
      decode, at(inside, "/units_in_use", 2));
  text += decode <= 1 ? ": it shows none of that gain, because branches and last layers share the device." : ".";
  if (!inside.contains("simulation")) return text;
  const ordered_json& simulation = inside.at("simulation");
  const auto devices = simulation.at("speedup_by_devices").size();
  text += fmt::format(" Simulated from measured layer times and copies, {} devices would give {}; ", devices,
                      on_all_devices(inside));
  const std::string from = pays_from(inside);
  if (from == "1") return text + "it pays on one device already.";
  if (from != "never") return text + fmt::format("it pays from {} devices.", from);
  const auto& rate = simulation.at("break_even_match_rate");
  return text + (rate.is_null() ? "it would not pay at any match rate."
                                : fmt::format("it would pay from a match rate of {}.", fixed(rate, 3)));
}

// Where calm's tokens leave: a row a run, a column a layer.
std::string exits_svg(const std::vector<const ordered_json*>& runs) {
  constexpr double kLeft = 260;
  constexpr double kRow = 20;
  std::string body;
  double top = 20;
  for (const auto* run : runs) {
    if (!run->at("inside").contains("exit_histogram")) continue;
    const auto counts = run->at("inside").at("exit_histogram").get<std::vector<double>>();
    double total = 0;
    for (const double count : counts) total += count;
    if (total == 0) continue;
    const double width = std::min(60.0, (kPlotWidth - kLeft - 10) / static_cast<double>(counts.size()));
    if (body.empty()) {
      for (size_t i = 0; i < counts.size(); ++i) {
        body += svg_text(kLeft + width * (static_cast<double>(i) + 0.5), 14, std::to_string(i + 1), "middle");
      }
    }
    body += svg_text(kLeft - 6, top + 14, run->at("name"), "end");
    for (size_t i = 0; i < counts.size(); ++i) {
      const double share = counts[i] / total;
      const double left = kLeft + width * static_cast<double>(i);
      body += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#3a76b1\" "
          "fill-opacity=\"{:.3f}\"><title>layer {}: {:.1f} %</title></rect>\n",
          left, top, width - 2, kRow - 2, share, i + 1, 100 * share);
      body += svg_text(left + width / 2, top + 14, fmt::format("{:.0f}", 100 * share), "middle");
    }
    top += kRow;
  }
  return body.empty() ? "" : open_svg(top + 6, "exits by layer") + body + "</svg>\n";
}

std::string html_row(const std::vector<std::string>& cells, size_t index) {
  std::string html = fmt::format("<tr><td>{}</td>", index);
  for (const std::string& cell : cells) html += "<td>" + escape_html(cell) + "</td>";
  return html + "</tr>\n";
}

}  // namespace

std::string inside_table(const ordered_json& task) {
  const auto runs = inside_runs(task);
  if (runs.empty()) return "";
  std::vector<std::vector<std::string>> rows;
  std::string below;
  for (const auto* run : runs) {
    rows.push_back(row_of(*run));
    const std::string words = ppd_words(*run);
    if (!words.empty()) below += wrapped("  " + words, kResultsWidth);
  }
  return wrapped(fmt::format("{}: {}", task.at("name").get<std::string>(), kMeaning), kResultsWidth) +
         run_table(columns(), std::move(rows)) + below;
}

std::string inside_section(const ordered_json& task) {
  const auto runs = inside_runs(task);
  if (runs.empty()) return "";
  std::string html =
      fmt::format("<h3>Inside the model</h3>\n<p>{}; match: how often the next token is among PPD's ", kMeaning);
  html +=
      "candidates; units: layers that run at one time, on average; theorem: Theorem 4.1's speed at that match rate; "
      "k+1 "
      "dev.: the speed simulated on so many devices, and from how many it pays.</p>\n<table>\n<tr><th>#</th>";
  for (const Column& column : columns()) html += "<th>" + column.header + "</th>";
  html += "</tr>\n";
  std::string below;
  for (size_t i = 0; i < runs.size(); ++i) {
    html += html_row(row_of(*runs[i]), i + 1);
    const std::string words = ppd_words(*runs[i]);
    if (!words.empty()) below += "<p>" + escape_html(words) + "</p>\n";
  }
  html += "</table>\n" + below;
  const std::string exits = exits_svg(runs);
  return exits.empty() ? html : html + "<h3>Where calm's tokens leave (%)</h3>\n" + exits;
}

}  // namespace draftsmith::evaluate
