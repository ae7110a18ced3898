// Outputs of some lines, each token marked by its origin, as in BiLD's figure 9 (Kim et al. 2023).
#include <array>

#include <fmt/format.h>

#include "base/table.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

struct Origin {
  const char* name;
  const char* words;
};
constexpr std::array kOrigins{Origin{"drafted", "drafted and kept"}, Origin{"target", "the target's own"},
                              Origin{"rejected", "drafted and taken back"},
                              Origin{"unverified", "drafted at the end, not judged"}};

// Returns a token's text in the look of its origin; the text alone for an origin that is not known.
std::string token_html(const TokenText& token) {
  for (const Origin& origin : kOrigins) {
    if (token.origin == origin.name) {
      return fmt::format("<span class=\"{}\" title=\"{}\">{}</span>", origin.name, origin.words,
                         escape_html(token.text));
    }
  }
  return escape_html(token.text);
}

std::string legend_html() {
  std::string html = "<p class=\"tokens hint\">Tokens are";
  for (const Origin& origin : kOrigins) {
    html += origin.name == kOrigins.front().name ? " " : ", ";
    html += fmt::format("<span class=\"{}\">{}</span>", origin.name, origin.words);
  }
  return html + ".</p>\n";
}

std::string example_entry(const std::string& name, const std::string& html) {
  return html.empty() ? "" : fmt::format("<dt>{}</dt><dd class=\"tokens\">{}</dd>\n", escape_html(name), html);
}

std::string example_html(const Example& example) {
  std::string html = fmt::format("<div class=\"example\"><p class=\"hint\">Line {}</p>\n<dl>\n", example.line + 1);
  html += example_entry("source", escape_html(example.source)) +
          example_entry("reference", escape_html(example.reference)) +
          example_entry("greedy", escape_html(example.greedy));
  for (const ExampleOutput& output : example.outputs) {
    std::string tokens;
    for (const TokenText& token : output.tokens) tokens += token_html(token);
    html += example_entry(output.setting, tokens);
  }
  return html + "</dl></div>\n";
}

std::vector<Part> example_parts(const TaskView& view, Form form) {
  if (form == Form::kBrief || view.task.examples.empty()) return {};
  Part part{.html = legend_html()};
  for (const Example& example : view.task.examples) part.html += example_html(example);
  return {part};
}

}  // namespace

Section examples_section() {
  return {.title = "Example outputs", .parts = example_parts};
}

}  // namespace draftsmith::evaluate
