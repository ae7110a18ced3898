// A suite's report as one HTML file: text and tables, then D3 and scripts that draw the plots as wide as the window,
// sort and filter.
#include <sstream>

#include <fmt/format.h>

#include "base/table.h"
#include "base/utf8.h"
#include "evaluate/report/report.h"
#include "evaluate/report/sections.h"

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
  return "<figure class=\"plot\">\n<div class=\"drawing\"></div>\n" + data_element(figure.data, "data") +
         "<figcaption>" + escape_html(figure.caption) + "</figcaption>\n</figure>\n";
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
  return html + notes_html(part.notes);
}

// Returns the method and the given parameters of each setting, which a page shows when its mark or name is chosen: an
// object with, for each setting, a list of pairs [name, value].
ordered_json parameters_of(const TaskResult& task) {
  ordered_json all = ordered_json::object();
  for (const SettingResult* setting : task.rows()) {
    ordered_json& pairs = all[setting->name] = ordered_json::array({ordered_json::array({"method", setting->method})});
    for (const auto& [key, value] : setting->params.items()) {
      pairs.push_back(ordered_json::array({key, value.is_string() ? value.get<std::string>() : value.dump()}));
    }
  }
  return all;
}

// Returns a task's heading and sections. `place` begins the headings' ids.
std::string task_html(const TaskView& view, const std::string& place) {
  std::string html = fmt::format("<article><h2 id=\"{}\">{}</h2>\n", place, escape_html(task_heading(view.task)));
  if (view.task.chooses) html += paragraph(kChoosingPurpose, "purpose");
  html += data_element(parameters_of(view.task), "parameters");
  size_t index = 0;
  for (const Section& section : sections()) {
    ++index;
    const std::vector<Part> shown = section.parts(view, Form::kFull);
    if (shown.empty()) continue;
    html += fmt::format("<section>\n<h3 id=\"{}-{}\">{}</h3>\n", place, index, escape_html(section.title));
    for (const Part& part : shown) html += part_html(part);
    html += "</section>\n";
  }
  return html + "</article>\n";
}

// Returns the page's first lines: what was found, when and where.
std::string head_html(const Results& results) {
  std::string html = "<header><h1>" + escape_html(results.suite) + "</h1>\n";
  for (const std::string& line : headlines(results)) html += paragraph(line, "headline");
  const std::string stamp = fmt::format("{:.10} · {} · commit {}", results.environment_text("date"),
                                        results.environment_text("device"), results.environment_text("commit"));
  return html + paragraph(stamp, "stamp") + "</header>\n";
}

// Returns what is needed to measure the same again: command, machine, models and options.
std::string environment_html(const Results& results) {
  const auto listing = [](const ordered_json& json) {
    return "<pre>" + escape_html(json.dump(2, ' ', false, ordered_json::error_handler_t::replace)) + "</pre>";
  };
  const std::string command = results.environment_text("command");
  std::string html = "<h2 id=\"environment\">How it was measured</h2>\n";
  if (!command.empty()) html += "<pre class=\"command\">" + escape_html(command) + "</pre>\n";
  html += listing(results.environment) + "\n";
  if (results.options.empty()) return html;
  return html + "<details><summary>All options of the suite</summary>" + listing(results.options) + "</details>\n";
}

// Returns the texts of the files whose names end like this, one after the other.
std::string page_texts_ending(std::string_view ending) {
  std::string text;
  for (const EmbeddedText& file : page_texts()) {
    if (file.name.ends_with(ending)) text += std::string(file.text) + "\n";
  }
  return text;
}

std::string scripts_html() {
  return "<script>/*\n" + page_texts_ending("LICENCE") + "*/\n" + page_texts_ending(".min.js") +
         "</script>\n<script>\n" + page_texts_ending(".page.js") + "</script>\n";
}

}  // namespace

std::string report_html(const Results& results) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}</style></head>\n<body>\n",
      escape_html(results.suite), page_texts_ending(".css"));
  html += head_html(results) + "<main>\n";
  const std::vector<const TaskResult*> tasks = page_order(results);
  for (size_t i = 0; i < tasks.size(); ++i) html += task_html({results, *tasks[i]}, fmt::format("task{}", i + 1));
  html += "<article>\n" + environment_html(results) + "</article>\n</main>\n";
  return replace_invalid_utf8(html + scripts_html() + "</body></html>\n");
}

}  // namespace draftsmith::evaluate
