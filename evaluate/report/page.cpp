#include <sstream>

#include <fmt/format.h>

#include "base/html.h"
#include "evaluate/report/report.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

constexpr const char* kStyle =
    R"(body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1100px;padding:0 1em;
color:#1d2329;background:#fff}table{border-collapse:collapse;width:100%;font-size:13px}th,td{padding:3px 8px;
text-align:right;border-bottom:1px solid #dde3e8}th.left,td.left{text-align:left}svg{width:100%;
max-width:900px;font:12px system-ui,sans-serif}.grid{stroke:#e3e8ec}.whisker{stroke:#888}
.error{color:#b00020;font-weight:600}dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px}
dt{color:#5b6770}dd{margin:0}h2{margin-top:2em})";

std::string paragraph(const std::string& text) {
  const bool error = text.starts_with("!");
  return fmt::format("<p{}>{}</p>\n", error ? " class=\"error\"" : "", escape_html(text));
}

// Returns a paragraph for each line of a caption, since HTML shows newlines as blanks.
std::string caption_html(const std::string& caption) {
  std::string html;
  std::istringstream lines(caption);
  for (std::string line; std::getline(lines, line);) html += paragraph(line);
  return html;
}

std::string part_html(const Part& part) {
  std::string html = caption_html(part.caption);
  if (!part.table.empty()) html += part.table.html();
  for (const std::string& note : part.notes) html += paragraph(note);
  for (const std::string& plot : part.plots) html += plot;
  return html;
}

std::string task_html(const TaskView& view) {
  std::string html = fmt::format("<h2>{}</h2>\n", escape_html(view.task.name));
  for (const Section& section : sections()) {
    if (section.parts == nullptr) continue;
    const auto parts = section.parts(view, Form::kFull);
    if (!parts.empty() && !section.title.empty()) html += fmt::format("<h3>{}</h3>\n", escape_html(section.title));
    for (const Part& part : parts) html += part_html(part);
  }
  return html;
}

}  // namespace

std::string report_html(const Results& results) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>{1}</style></head>\n"
      "<body><h1>{0}</h1>\n<dl>\n",
      escape_html(results.suite), kStyle);
  for (const auto& [key, value] : results.environment.items()) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape_html(key),
                        escape_html(value.is_string() ? value.get<std::string>() : value.dump()));
  }
  html += "</dl>\n";
  for (const TaskResult& task : results.tasks) html += task_html({results, task});
  return html + "</body></html>\n";
}

}  // namespace draftsmith::evaluate
