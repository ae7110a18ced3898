#include <fmt/format.h>

#include "evaluate/report/report.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

// A value of the environment, as `format` shows it.
std::string recorded(const Results& results, const std::string& key, fmt::format_string<std::string> format) {
  const auto found = results.environment.find(key);
  if (found == results.environment.end() || found->is_null()) return key + " not recorded";
  return fmt::format(format, found->is_string() ? found->get<std::string>() : found->dump());
}

// What was measured, how, where and when. Old files lack some of it. On a CPU the device is the processor.
std::string stamp(const Results& results) {
  std::string device = results.environment.value("device", "");
  if (!device.empty()) device = results.environment.value("cpu", "") == device ? "" : ", " + device;
  return fmt::format("Suite `{}`; {}; {}; {}, {}{}, {}, {}; {}.\n", results.suite,
                     recorded(results, "command", "command `{}`"), recorded(results, "commit", "commit {}"),
                     recorded(results, "cpu", "{}"), recorded(results, "cores", "{} cores"), device,
                     recorded(results, "threads", "threads: {}"), recorded(results, "dtype", "{}"),
                     recorded(results, "date", "{}"));
}

// Text behind a table as a list; leading blanks would make it code.
std::string item(const std::string& note) {
  const size_t begin = note.find_first_not_of(' ');
  return begin == std::string::npos ? "" : "- " + note.substr(begin) + "\n";
}

std::string part_markdown(const Part& part) {
  std::string text;
  for (const char c : part.caption) text += c == '\n' ? std::string("  \n") : std::string(1, c);
  text += "\n\n" + part.table.markdown();
  if (!part.notes.empty()) text += "\n";
  for (const std::string& note : part.notes) text += item(note);
  return text;
}

}  // namespace

std::string report_markdown(const Results& results) {
  std::string text = fmt::format("# {}\n\n{}", results.suite, stamp(results));
  for (const TaskResult& task : results.tasks) {
    text += fmt::format("\n## {}\n", task.name);
    for (const Section& section : sections()) {
      if (section.parts == nullptr) continue;
      std::string shown;
      for (const Part& part : section.parts({results, task}, Form::kBrief)) {
        if (!part.table.empty()) shown += "\n" + part_markdown(part);
      }
      if (!shown.empty() && !section.title.empty()) text += fmt::format("\n### {}\n", section.title);
      text += shown;
    }
  }
  return text;
}

}  // namespace draftsmith::evaluate
