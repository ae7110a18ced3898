#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "base/table.h"
#include "evaluate/report/headline.h"
#include "evaluate/report/report.h"
#include "evaluate/report/sections.h"
#include "evaluate/report/task_order.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kDocumentWidth = 120;  // columns of a document's lines

// Returns a text or number of the environment in that format, or says that it was not recorded.
std::string recorded(const Results& results, const std::string& key, fmt::format_string<std::string> format) {
  if (const auto text = results.environment_text(key)) return fmt::format(format, std::string(*text));
  if (const auto number = results.environment_number(key)) return fmt::format(format, std::to_string(*number));
  return key + " not recorded";
}

// Returns where the first option after `begin` starts with " --", or the command's end. `begin` is outside quotes.
size_t next_option(const std::string& command, size_t begin) {
  char quote = '\0';
  for (size_t i = begin; i < command.size(); ++i) {
    const char c = command[i];
    if (c == '\\' && quote != '\'') {
      ++i;  // the next character is literal
    } else if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (i > begin && command.compare(i, 3, " --") == 0) {
      return i;
    }
  }
  return command.size();
}

// Returns a command in lines that a shell reads as one. It is broken before options, and never inside quotes.
std::string broken_command(const std::string& command) {
  std::string lines;
  std::string line;
  for (size_t begin = 0; begin < command.size();) {
    const size_t end = next_option(command, begin);
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

// Returns the head of the page: suite, commit, date, machine and command. A device that is the CPU is named once.
std::string stamp(const Results& results) {
  const std::string cpu = results.environment_text("cpu").value_or("");
  const std::string device = results.environment_text("device").value_or(cpu);
  std::string text = fmt::format("Suite `{}`, {}, {}.\n", results.suite, recorded(results, "commit", "commit {}"),
                                 recorded(results, "date", "{}"));
  text += fmt::format("{}, {}{}, {}, {}.\n", recorded(results, "cpu", "{}"), recorded(results, "cores", "{} cores"),
                      device == cpu ? "" : ", " + device, recorded(results, "threads", "threads: {}"),
                      recorded(results, "dtype", "{}"));
  const std::string command = results.environment_text("command").value_or("");
  return command.empty() ? text + "The command was not recorded.\n"
                         : text + "\n```\n" + broken_command(command) + "```\n";
}

// Returns a note as an item of a list, without the leading blanks that would make it code.
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

// Returns a task's heading, what it was for, and its sections.
std::string task_markdown(const TaskView& view) {
  std::string text = fmt::format("\n## {}\n", task_heading(view.task));
  const std::string purpose = task_purpose(view.results, view.task);
  if (!purpose.empty()) text += "\n" + wrapped(purpose, kDocumentWidth, 0, 0);
  for (const Section& section : sections()) {
    if (section.parts == nullptr) continue;
    std::string shown;
    for (const Part& part : section.parts(view, Form::kBrief)) {
      if (!part.table.empty()) shown += "\n" + part_markdown(part);
    }
    if (!shown.empty() && !section.title.empty()) text += fmt::format("\n### {}\n", section.title);
    text += shown;
  }
  return text;
}

}  // namespace

std::string report_markdown(const Results& results) {
  std::string text = fmt::format("# {}\n\n", results.suite);
  for (const std::string& line : headlines(results)) text += wrapped(line, kDocumentWidth, 0, 0) + "\n";
  text += stamp(results);
  for (const TaskResult* task : page_order(results)) text += task_markdown({results, *task});
  return text;
}

}  // namespace draftsmith::evaluate
