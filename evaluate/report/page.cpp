#include "evaluate/report/page.h"

#include <fmt/format.h>

#include "base/html.h"
#include "evaluate/report/plots.h"
#include "evaluate/report/quality_curves.h"
#include "evaluate/report/section_inside.h"
#include "evaluate/report/section_match_rates.h"
#include "evaluate/report/section_prediction.h"
#include "evaluate/report/section_windows.h"
#include "metrics/registry.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

constexpr const char* kStyle =
    R"(body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1100px;padding:0 1em;
color:#1d2329;background:#fff}table{border-collapse:collapse;width:100%;font-size:13px}th,td{padding:3px 8px;
text-align:right;border-bottom:1px solid #dde3e8}th:nth-child(2),td:nth-child(2){text-align:left}svg{width:100%;
max-width:900px;font:12px system-ui,sans-serif}.grid{stroke:#e3e8ec}.whisker{stroke:#888}.point{fill:#3a76b1}
.error{color:#b00020;font-weight:600}dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px}
dt{color:#5b6770}dd{margin:0}h2{margin-top:2em})";

std::string number(const ordered_json& json, const std::string& pointer, int digits) {
  const ordered_json::json_pointer path(pointer);
  if (!json.contains(path) || !json.at(path).is_number()) return "";
  return fmt::format("{:.{}f}", json.at(path).get<double>(), digits);
}

std::string interval(const ordered_json& json, const std::string& pointer, int digits) {
  const std::string value = number(json, pointer, digits);
  if (value.empty()) return "";
  return fmt::format("{} <small>[{}, {}]</small>", value, number(json, pointer + "_ci95/0", digits),
                     number(json, pointer + "_ci95/1", digits));
}

std::string cell(const std::string& text, const char* tag = "td") {
  return fmt::format("<{0}>{1}</{0}>", tag, text);
}

// Without a score its three columns are left out.
std::string table_head(const std::string& score) {
  std::string html = "<tr>" + cell("#", "th") + cell("run", "th");
  if (!score.empty()) html += cell(score, "th") + cell("difference", "th") + cell("p", "th");
  for (const std::string& name :
       {std::string("speedup"), std::string("total"), std::string("decode"), std::string("theory"),
        std::string("counts say"), std::string("tokens/run"), std::string("alpha"), std::string("accepted"),
        std::string("fallback"), std::string("rollback"), std::string("target runs"), std::string("draft runs"),
        std::string("tokens/s")}) {
    html += cell(name, "th");
  }
  return html + "</tr>\n";
}

std::string table_row(const ordered_json& run, const std::string& score, size_t index) {
  const int digits = score.starts_with("rouge") ? 4 : 2;
  std::string html = "<tr>" + cell(std::to_string(index)) + cell(escape_html(run.at("name")));
  if (!score.empty()) {
    html += cell(interval(run, "/quality/" + score, digits)) + cell(number(run, "/quality/difference", digits)) +
            cell(number(run, "/quality/p_value", 3));
  }
  html += cell(interval(run, "/speed/speedup", 2)) + cell(number(run, "/speed/speedup_total", 2)) +
          cell(number(run, "/speed/speedup_decode", 2)) + cell(number(run, "/predicted/speedup", 2)) +
          cell(number(run, "/predicted/speedup_from_counts", 2));
  for (const char* name : {"tokens_per_target_run", "alpha", "acceptance_rate", "fallback_rate", "rollback_rate"}) {
    html += cell(number(run, std::string("/acceptance/") + name, 3));
  }
  html += cell(number(run, "/acceptance/target_runs_per_output", 1)) +
          cell(number(run, "/acceptance/draft_runs_per_output", 1));
  return html + cell(number(run, "/speed/tokens_per_second", 0)) + "</tr>\n";
}

std::string remarks(const ordered_json& run) {
  std::string html;
  const std::string name = escape_html(run.at("name"));
  if (run.contains("measurement_error")) {
    html += fmt::format("<p class=\"error\">{}: {}</p>\n", name, escape_html(run.at("measurement_error")));
  }
  if (run.contains("chosen")) {
    const auto& chosen = run.at("chosen");
    html += fmt::format("<p>{}: {} chosen on {} for at most {} points lost there (it lost {}).</p>\n", name,
                        escape_html(chosen.at("setting")), escape_html(chosen.at("on")), chosen.at("max_drop").dump(),
                        number(chosen, "/drop_there", 2));
  }
  if (run.contains("exactness") && run.at("exactness").at("differing_lines") > 0) {
    html += fmt::format("<p>{}: {} of {} lines differ from greedy decoding{}.</p>\n", name,
                        run.at("exactness").at("differing_lines").dump(), run.at("exactness").at("lines").dump(),
                        run.at("exactness").at("lossless") == true ? ", though the method is lossless" : "");
  }
  return html;
}

std::string drafters(const ordered_json& task) {
  std::string html;
  for (const auto& [name, drafter] : task.at("drafters").items()) {
    html += fmt::format("<p>Drafter {}: cost ratio c = {}, alpha_forced {} at T = 0 and {} at T = 1", escape_html(name),
                        number(drafter, "/cost_ratio", 3), number(drafter, "/alpha_forced/temperature_0", 3),
                        number(drafter, "/alpha_forced/temperature_1", 3));
    if (drafter.contains("target_step_seconds")) {
      const auto seconds = drafter.at("target_step_seconds").get<std::vector<double>>();
      html += "; a target step of 1, 2, … tokens takes";
      for (const double value : seconds) html += fmt::format(" {:.2f}", value * 1000);
      html += " ms";
    }
    html += ".</p>\n";
  }
  return html;
}

std::string cut_sources(const ordered_json& task) {
  if (task.at("cut_sources") == 0) return "";
  return fmt::format(" ({} sources were longer than max_source_tokens and were cut)", task.at("cut_sources").dump());
}

std::string section(const ordered_json& task, const ordered_json& parameters) {
  const std::string score = metrics::make_metric(task.at("metric").get<std::string>())->leading_score();
  std::string html = fmt::format(
      "<h2>{}</h2>\n<p>{} lines{}, {}; 95 % bootstrap intervals in brackets; runs are means over "
      "outputs.</p>\n<table>\n",
      escape_html(task.at("name")), task.at("lines").dump(), cut_sources(task), escape_html(task.at("signature")));
  html += table_head(score) + table_row(task.at("baseline"), score, 0);
  std::string below;
  size_t index = 0;
  for (const auto& run : task.at("runs")) {
    html += table_row(run, score, ++index);
    below += remarks(run);
  }
  html += "</table>\n" + below + drafters(task);
  html += prediction_section(task);
  html += window_section(task, parameters);
  html += inside_section(task);
  const std::string curves = quality_curves_svg(task, score);
  if (!curves.empty()) html += "<h3>Quality against latency</h3>\n" + curves;
  if (!score.empty()) html += "<h3>Quality against speedup</h3>\n" + scatter_svg(task, score);
  html += "<h3>Time per token, by phase</h3>\n" + phases_svg(task);
  const std::string histograms = histograms_svg(task);
  if (!histograms.empty()) html += "<h3>Accepted lengths</h3>\n" + histograms;
  return html;
}

}  // namespace

std::string report_html(const ordered_json& results) {
  const std::string title = escape_html(results.at("suite"));
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>{1}</style></head>\n"
      "<body><h1>{0}</h1>\n<dl>\n",
      title, kStyle);
  for (const auto& [key, value] : results.at("environment").items()) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape_html(key),
                        escape_html(value.is_string() ? value.get<std::string>() : value.dump()));
  }
  html += "</dl>\n";
  const auto& environment = results.at("environment");
  const ordered_json parameters = environment.value("parameters", ordered_json::object());
  for (const auto& task : results.at("tasks")) html += section(task, parameters);
  html += match_rates_section(results);
  return html + "</body></html>\n";
}

}  // namespace draftsmith::evaluate
