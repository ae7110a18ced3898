#include <algorithm>

#include "evaluate/report/headline.h"
#include "evaluate/report/report.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kWidth = 100;  // columns

// Returns a text with each of its lines wrapped.
std::string wrapped_lines(const std::string& text) {
  std::string lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines += wrapped(text.substr(begin, end - begin), kWidth);
    begin = end + 1;
  }
  return lines;
}

std::string part_text(const Part& part) {
  std::string text = wrapped_lines(part.caption) + part.table.text_with_whole_names(kWidth);
  for (const std::string& note : part.notes) text += wrapped(note, kWidth);
  return text;
}

// Returns the tables of the sections that are shown on this request.
std::string tables_of(const Results& results, Request asked) {
  std::string text;
  for (const TaskResult& task : results.tasks) {
    for (const Section& section : sections()) {
      if (section.parts == nullptr || section.request != asked) continue;
      for (const Part& part : section.parts({results, task}, Form::kBrief)) {
        if (part.table.empty()) continue;
        if (!text.empty()) text += "\n";
        text += part_text(part);
      }
    }
  }
  return text;
}

}  // namespace

std::string results_table(const Results& results) {
  std::string text = tables_of(results, Request::kNone);
  const std::vector<std::string> lines = headlines(results);
  if (!text.empty() && !lines.empty()) text += "\n";
  for (const std::string& line : lines) text += wrapped(line, kWidth);
  return text;
}

std::string latency_tables(const Results& results) {
  return tables_of(results, Request::kLatency);
}

}  // namespace draftsmith::evaluate
