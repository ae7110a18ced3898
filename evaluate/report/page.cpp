// A suite's report as one HTML file: text, tables and pictures that need no script, then data, D3 and scripts that draw
// the pictures as wide as the window, sort and filter.
#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "base/table.h"
#include "base/utf8.h"
#include "evaluate/report/headline.h"
#include "evaluate/report/page_environment.h"
#include "evaluate/report/page_texts.h"
#include "evaluate/report/report.h"
#include "evaluate/report/sections.h"
#include "evaluate/report/setting_details.h"
#include "evaluate/report/task_order.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostNotes = 3;  // that stand below a table without being asked for

// Returns an element with data for scripts. No text in it ends the element or begins a comment.
std::string data_element(const ordered_json& data, const std::string& kind) {
  std::string html = "<script type=\"application/json\" class=\"" + kind + "\">";
  for (const char c : data.dump(-1, ' ', false, ordered_json::error_handler_t::replace)) {
    c == '<' ? void(html += "\\u003c") : html.push_back(c);
  }
  return html + "</script>\n";
}

std::string paragraph(const std::string& text, const std::string& kind) {
  const bool error = text.starts_with("!");
  return fmt::format("<p class=\"{}\">{}</p>\n", error ? "error" : kind, escape_html(text));
}

// Returns a paragraph for each line of a caption, since HTML shows newlines as blanks.
std::string caption_html(const std::string& caption) {
  std::string html;
  std::istringstream lines(caption);
  for (std::string line; std::getline(lines, line);) html += paragraph(line, "caption");
  return html;
}

std::string figure_html(const Figure& figure) {
  std::string html = figure.data.is_null() ? "<figure>\n" : "<figure class=\"plot\">\n";
  html += "<div class=\"drawing\">" + figure.svg + "</div>\n";
  if (!figure.data.is_null()) html += data_element(figure.data, "data");
  if (!figure.caption.empty()) html += "<figcaption>" + escape_html(figure.caption) + "</figcaption>\n";
  return html + "</figure>\n";
}

// Returns notes: errors, and a few others. More of these are folded away.
std::string notes_html(const std::vector<std::string>& notes) {
  std::string errors;
  std::string others;
  size_t count = 0;
  for (const std::string& note : notes) {
    const bool error = note.starts_with('!');
    (error ? errors : others) += paragraph(note, "note");
    count += error ? 0 : 1;
  }
  if (count <= kMostNotes) return errors + others;
  return errors + fmt::format("<details><summary>{} notes</summary>\n", count) + others + "</details>\n";
}

std::string part_html(const Part& part) {
  std::string html;
  for (const Figure& figure : part.figures) html += figure_html(figure);
  html += caption_html(part.caption);
  if (!part.table.empty()) html += "<div class=\"table\">" + part.table.html() + "</div>\n";
  return html + notes_html(part.notes) + part.html;
}

// Returns the headings and parts of sections. `parts` returns those of a section, and `place` begins the headings' ids.
template <class Parts>
std::string sections_html(const std::string& place, const Parts& parts) {
  std::string html;
  size_t index = 0;
  for (const Section& section : sections()) {
    ++index;
    const std::vector<Part> shown = parts(section);
    if (shown.empty()) continue;
    html += "<section>\n";
    if (!section.title.empty()) {
      html += fmt::format("<h3 id=\"{}-{}\">{}</h3>\n", place, index, escape_html(section.title));
    }
    for (const Part& part : shown) html += part_html(part);
    html += "</section>\n";
  }
  return html;
}

std::string task_html(const TaskView& view, const std::string& place) {
  std::string html = fmt::format("<article><h2 id=\"{}\">{}</h2>\n", place, escape_html(task_heading(view.task)));
  const std::string purpose = task_purpose(view.results, view.task);
  if (!purpose.empty()) html += paragraph(purpose, "purpose");
  html += data_element(setting_details(view.task), "details");
  html += sections_html(place, [&](const Section& section) {
    return section.parts == nullptr ? std::vector<Part>() : section.parts(view, Form::kFull);
  });
  return html + "</article>\n";
}

std::string shared_html(const Results& results) {
  const std::string html = sections_html("all", [&](const Section& section) {
    return section.shared_parts == nullptr ? std::vector<Part>() : section.shared_parts(results);
  });
  return html.empty() ? "" : "<article>\n" + html + "</article>\n";
}

// Returns a headline whose names of settings, in parentheses, step back.
std::string headline_html(const std::string& line) {
  std::string html;
  for (const char c : paragraph(line, "headline")) {
    if (c == '(') html += "<span class=\"who\">";
    html.push_back(c);
    if (c == ')') html += "</span>";
  }
  return html;
}

// Returns the page's first lines: what was found, when and where.
std::string head_html(const Results& results) {
  std::string html = "<header><h1>" + escape_html(results.suite) + "</h1>\n";
  for (const std::string& line : headlines(results)) html += headline_html(line);
  std::string stamp;
  for (const char* key : {"date", "device", "commit"}) {
    const auto text = results.environment_text(key);
    if (!text || text->empty()) continue;
    const bool commit = std::string(key) == "commit";
    const std::string shown = std::string(key) == "date" ? text->substr(0, 10) : *text;
    stamp += (stamp.empty() ? "" : " · ") + std::string(commit ? "commit " : "") + shown;
  }
  return html + paragraph(stamp, "stamp") + "</header>\n";
}

std::string scripts_html() {
  return "<script>/*\n" + page_texts_ending("LICENCE") + "*/\n" + page_texts_ending(".min.js") +
         "</script>\n<script>\n" + page_texts_ending(".page.js") + "</script>\n";
}

}  // namespace

std::string page_texts_ending(std::string_view ending) {
  std::string text;
  for (const PageText& file : page_texts()) {
    if (file.name.ends_with(ending)) text += std::string(file.text) + "\n";
  }
  return text;
}

std::string report_html(const Results& results) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}</style></head>\n<body>\n",
      escape_html(results.suite), page_texts_ending(".css"));
  html += head_html(results) + "<main>\n";
  const std::vector<const TaskResult*> tasks = page_order(results);
  for (size_t i = 0; i < tasks.size(); ++i) html += task_html({results, *tasks[i]}, fmt::format("task{}", i + 1));
  html += shared_html(results) + "<article>\n" + environment_html(results) + "</article>\n</main>\n";
  return replace_invalid_utf8(html + scripts_html() + "</body></html>\n");
}

}  // namespace draftsmith::evaluate
