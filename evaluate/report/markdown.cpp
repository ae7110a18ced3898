#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "base/table.h"
#include "evaluate/report/report.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kDocumentWidth = 120;  // columns of a document's lines

// A value of the environment, as `format` shows it.
std::string recorded(const Results& results, const std::string& key, fmt::format_string<std::string> format) {
  const auto found = results.environment.find(key);
  if (found == results.environment.end() || found->is_null()) return key + " not recorded";
  return fmt::format(format, found->is_string() ? found->get<std::string>() : found->dump());
}

// Returns a command in lines, broken before options, which a shell reads as one.
std::string broken_command(const std::string& command) {
  std::string lines;
  std::string line;
  for (size_t begin = 0; begin < command.size();) {
    const size_t end = std::min(command.find(" --", begin + 1), command.size());
    const std::string words = command.substr(begin, end - begin);
    if (!line.empty() && line.size() + words.size() + 2 > kDocumentWidth) {
      lines += line + " \\\n";
      line = " ";
    }
    line += words;
    begin = end;
  }
  return lines + line + "\n";
}

// What was measured, how, where and when. Old files lack some of it. On a CPU the device is the processor.
std::string stamp(const Results& results) {
  const std::string cpu = results.environment.value("cpu", "");
  const std::string device = results.environment.value("device", cpu);
  std::string text = fmt::format("Suite `{}`, {}, {}.\n", results.suite, recorded(results, "commit", "commit {}"),
                                 recorded(results, "date", "{}"));
  text += fmt::format("{}, {}{}, {}, {}.\n", recorded(results, "cpu", "{}"), recorded(results, "cores", "{} cores"),
                      device == cpu ? "" : ", " + device, recorded(results, "threads", "threads: {}"),
                      recorded(results, "dtype", "{}"));
  const std::string command = results.environment.value("command", "");
  return command.empty() ? text + "The command was not recorded.\n"
                         : text + "\n```\n" + broken_command(command) + "```\n";
}

// Text behind a table as a list; leading blanks would make it code.
std::string item(const std::string& note) {
  const size_t begin = note.find_first_not_of(' ');
  return begin == std::string::npos ? "" : wrapped("- " + note.substr(begin), kDocumentWidth, 0, 2);
}

std::string part_markdown(const Part& part) {
  std::string text;
  std::istringstream caption(part.caption);
  for (std::string line; std::getline(caption, line);)
    text += (text.empty() ? "" : "\n") + wrapped(line, kDocumentWidth, 0, 0);
  text += "\n" + part.table.markdown();
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
