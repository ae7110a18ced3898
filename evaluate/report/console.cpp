#include "evaluate/report/console.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text_table.h"
#include "evaluate/report/run_table.h"
#include "evaluate/report/section_inside.h"
#include "evaluate/report/section_match_rates.h"
#include "evaluate/report/section_prediction.h"
#include "evaluate/report/section_windows.h"
#include "metrics/registry.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

constexpr size_t kRuns = 6;  // columns of a task's table
constexpr size_t kFallback = 9;

// The value at a path of keys, or null.
ordered_json at(const ordered_json& json, const std::string& pointer) {
  const ordered_json::json_pointer path(pointer);
  return json.contains(path) ? json.at(path) : ordered_json();
}

std::string with_interval(const ordered_json& run, const std::string& key, int digits) {
  const auto value = at(run, key);
  const auto interval = at(run, key + "_ci95");
  if (!value.is_number() || !interval.is_array()) return "";
  const double half = (interval.at(1).get<double>() - interval.at(0).get<double>()) / 2;
  return fmt::format("{:.{}f} ±{:.{}f}", value.get<double>(), digits, half, digits);
}

// Runs of target and drafter for each output (Nair et al. 2024, Table 5).
std::string runs_text(const ordered_json& run) {
  const std::string drafter = fixed(at(run, "/acceptance/draft_runs_per_output"), 1);
  const std::string target = fixed(at(run, "/acceptance/target_runs_per_output"), 1);
  return drafter.empty() || drafter == "0.0" ? target : target + "+" + drafter;
}

std::vector<std::string> table_row(const ordered_json& run, const std::string& score) {
  const int digits = score == "rougeL" ? 4 : 2;
  const bool bild = at(run, "/method") == "bild" || at(run, "/params/rollback") != ordered_json();
  return {run.at("name").get<std::string>(),
          score.empty() ? "" : with_interval(run, "/quality/" + score, digits),
          fixed(at(run, "/quality/difference"), digits),
          with_interval(run, "/speed/speedup", 2),
          fixed(at(run, "/speed/speedup_decode"), 2),
          fixed(at(run, "/predicted/speedup"), 2),
          runs_text(run),
          fixed(at(run, "/acceptance/tokens_per_target_run"), 2),
          fixed(at(run, "/acceptance/alpha"), 3),
          bild ? fixed(at(run, "/acceptance/fallback_rate"), 3) : "",
          bild ? fixed(at(run, "/acceptance/rollback_rate"), 3) : ""};
}

std::string notes(const ordered_json& run) {
  std::string text;
  const std::string name = run.at("name");
  if (run.contains("measurement_error")) {
    text += fmt::format("! {}: {}\n", name, run.at("measurement_error").get<std::string>());
  }
  if (const auto differing = at(run, "/exactness/differing_lines"); differing.is_number()) {
    const bool lossless = at(run, "/exactness/lossless") == true;
    if (lossless && differing > 0) {
      const bool rounding = at(run, "/exactness/explained_by_rounding") == true;
      text += fmt::format("{} {}: {} of {} lines differ from greedy decoding, largest margin {:.2g}: {}\n",
                          rounding ? " " : "!", name, differing.dump(), at(run, "/exactness/lines").dump(),
                          at(run, "/exactness/largest_margin").get<double>(),
                          rounding ? "rounding" : "more than rounding explains");
    }
  }
  if (const auto chosen = at(run, "/chosen"); chosen.is_object()) {
    text += fmt::format("  {}: {}, chosen on {}{}\n", name, chosen.at("setting").get<std::string>(),
                        chosen.at("on").get<std::string>(),
                        chosen.at("allowed") == true ? "" : " (no setting lost so little; this one lost least)");
  }
  return text;
}

std::string cut_sources(const ordered_json& task) {
  const auto cut = at(task, "/cut_sources");
  return cut.is_number() && cut > 0 ? fmt::format(", {} sources cut", cut.dump()) : "";
}

std::string task_table(const ordered_json& task) {
  const std::string score = metrics::make_metric(task.at("metric").get<std::string>())->leading_score();
  std::vector<Column> columns{
      {"run", Align::kLeft}, {score},   {"diff"},  {"speedup"}, {"decode"}, {"theory"}, {"runs"},
      {"tok/run"},           {"alpha"}, {"fallb"}, {"rollb"}};
  std::vector<std::vector<std::string>> rows{table_row(task.at("baseline"), score)};
  std::string below;
  for (const auto& run : task.at("runs")) {
    rows.push_back(table_row(run, score));
    below += notes(run);
  }
  if (std::any_of(rows.begin(), rows.end(), [](const auto& row) { return !row[kFallback].empty(); })) {
    for (auto& row : rows) row[kRuns].clear();  // fallb says it of BiLD, and there is no room for both
  }
  if (score.empty()) {
    columns.erase(columns.begin() + 1, columns.begin() + 3);
    for (auto& row : rows) row.erase(row.begin() + 1, row.begin() + 3);
  }
  return fmt::format("{} ({} lines{}, greedy {} tokens/s)\n{}\n{}{}", task.at("name").get<std::string>(),
                     task.at("lines").dump(), cut_sources(task),
                     fixed(at(task, "/baseline/speed/tokens_per_second"), 0), task.at("signature").get<std::string>(),
                     run_table(std::move(columns), std::move(rows), {.baseline = true}), below);
}

// Columns of the spreadsheet: header and path in a run's object.
const std::vector<std::pair<std::string, std::string>>& csv_columns() {
  static const std::vector<std::pair<std::string, std::string>> kAll{
      {"run", "/name"},
      {"method", "/method"},
      {"params", "/params"},
      {"quality_difference", "/quality/difference"},
      {"quality_p_value", "/quality/p_value"},
      {"tokens_per_second", "/speed/tokens_per_second"},
      {"ms_per_token", "/speed/ms_per_token"},
      {"decode_ms_per_token", "/speed/decode_ms_per_token"},
      {"speedup", "/speed/speedup"},
      {"speedup_low", "/speed/speedup_ci95/0"},
      {"speedup_high", "/speed/speedup_ci95/1"},
      {"speedup_total", "/speed/speedup_total"},
      {"speedup_decode", "/speed/speedup_decode"},
      {"speedup_decode_bound", "/speed/speedup_decode_bound"},
      {"predicted_speedup", "/predicted/speedup"},
      {"cost_ratio", "/predicted/cost_ratio"},
      {"e_pt_ms", "/predicted/e_pt_ms"},
      {"long_run_ms", "/predicted/long_run_ms"},
      {"alpha", "/acceptance/alpha"},
      {"acceptance_rate", "/acceptance/acceptance_rate"},
      {"tokens_per_target_run", "/acceptance/tokens_per_target_run"},
      {"fallback_rate", "/acceptance/fallback_rate"},
      {"rollback_rate", "/acceptance/rollback_rate"},
      {"target_runs", "/acceptance/target_runs"},
      {"draft_runs", "/acceptance/draft_runs"},
      {"target_runs_per_output", "/acceptance/target_runs_per_output"},
      {"draft_runs_per_output", "/acceptance/draft_runs_per_output"},
      {"tokens", "/acceptance/tokens"},
      {"drafter_accuracy", "/prediction/accuracy"},
      {"drafter_cross_entropy", "/prediction/cross_entropy"},
      {"drafter_relative_accuracy", "/prediction/relative_accuracy"},
      {"drafter_relative_tv", "/prediction/relative_tv"},
      {"seconds_encode", "/speed/seconds/encode"},
      {"seconds_prefill", "/speed/seconds/prefill"},
      {"seconds_draft", "/speed/seconds/draft"},
      {"seconds_verify", "/speed/seconds/verify"},
      {"seconds_other", "/speed/seconds/other"},
      {"layer_runs_per_token", "/inside/layer_runs_per_token"},
      {"path_per_token", "/inside/path_per_token"},
      {"exit_layer", "/inside/exit_layer"},
      {"average_exit_layer", "/inside/average_exit_layer"},
      {"early_layer", "/inside/early_layer"},
      {"candidates", "/inside/candidates"},
      {"match_rate", "/inside/match_rate"},
      {"units_in_use", "/inside/units_in_use"},
      {"theorem_speedup", "/inside/theorem/speedup"},
      {"differing_lines", "/exactness/differing_lines"},
      {"measurement_error", "/measurement_error"}};
  return kAll;
}

std::string csv_cell(const ordered_json& value) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted.push_back('"');
    quoted.push_back(c);
  }
  quoted.push_back('"');
  return quoted;
}

std::string csv_line(const ordered_json& task, const ordered_json& run) {
  const std::string score = metrics::make_metric(task.at("metric").get<std::string>())->leading_score();
  const auto quality = [&](const std::string& path) { return score.empty() ? ordered_json() : at(run, path); };
  std::vector<std::string> cells{csv_cell(task.at("name")), score, csv_cell(quality("/quality/" + score)),
                                 csv_cell(quality("/quality/" + score + "_ci95/0")),
                                 csv_cell(quality("/quality/" + score + "_ci95/1"))};
  for (const auto& [header, path] : csv_columns()) cells.push_back(csv_cell(at(run, path)));
  return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace

std::string results_table(const ordered_json& results) {
  std::string text;
  for (const auto& task : results.at("tasks")) {
    if (!text.empty()) text += "\n";
    text += task_table(task);
    const std::string windows = window_table(task, at(results, "/environment/parameters"));
    if (!windows.empty()) text += "\n" + windows;
    const std::string prediction = prediction_table(task);
    if (!prediction.empty()) text += "\n" + prediction;
    const std::string inside = inside_table(task);
    if (!inside.empty()) text += "\n" + inside;
  }
  const std::string rates = match_rates_text(results);
  return rates.empty() ? text : text + "\n" + rates;
}

std::string results_csv(const ordered_json& results) {
  std::string text = "task,metric,quality,quality_low,quality_high";
  for (const auto& [header, path] : csv_columns()) text += "," + header;
  text += "\n";
  for (const auto& task : results.at("tasks")) {
    text += csv_line(task, task.at("baseline"));
    for (const auto& run : task.at("runs")) text += csv_line(task, run);
  }
  return text;
}

}  // namespace draftsmith::evaluate
