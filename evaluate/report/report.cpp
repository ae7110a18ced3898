// Reports of text: tables for the console, a Markdown page, and results.csv. page.cpp has the HTML page. Headlines of
// every report, and the order and headings of its tasks.
#include "evaluate/report/report.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/table.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {

// ---- headlines ----

namespace {

// Settings that the headline of a task names; nullptr: there is none.
struct Best {
  const SettingResult* lossless = nullptr;  // the fastest whose checks of losslessness passed
  const SettingResult* near = nullptr;      // the fastest that loses at most one point, and is faster than `lossless`
  bool lossy = false;                       // there are settings that may lose quality
};

double speedup_of(const SettingResult* setting) {
  return setting == nullptr ? 1 : setting->speed.speedup.value;
}

// Returns whether the interval says that the setting is faster than its baseline.
bool is_faster(const SettingResult& setting) {
  return setting.speed.speedup.interval.low > 1;  // false of an unknown interval
}

std::string times(const SettingResult& setting) {
  const auto& [value, interval] = setting.speed.speedup;
  const std::string error = fmt::format(" ±{:.2f}", (interval.high - interval.low) / 2);
  return fmt::format("{:.2f}{} ×", value, std::isfinite(interval.low) ? error : "");
}

std::string lossless_words(const Best& best, const std::string& score) {
  if (best.lossless == nullptr) return "";
  const std::string same = score.empty() ? "with the same output" : "at the same " + score;
  if (!is_faster(*best.lossless)) {
    return fmt::format("No lossless method is measurably faster (the best: {}, {})", times(*best.lossless),
                       best.lossless->name);
  }
  return fmt::format("Lossless methods are up to {} as fast {} ({})", times(*best.lossless), same, best.lossless->name);
}

std::string near_words(const Best& best, const std::string& score, const metrics::Metric& style) {
  const std::string size = style.point() == 1 ? "one point" : fmt::format("{:g}", style.point());
  const std::string within = fmt::format("within {} of {}", size, score);
  if (best.near != nullptr) {
    return fmt::format("the best {} is {} as fast ({}, {:+.{}f})", within, times(*best.near), best.near->name,
                       best.near->quality.difference->value, style.digits());
  }
  return best.lossy ? fmt::format("nothing {} is faster", within) : "";
}

Best best_settings(const TaskResult& task, const metrics::Metric& style) {
  Best best;
  for (const SettingResult& setting : task.settings) {
    if (!counts(setting, task)) continue;
    const bool lossless = keeps_outputs(setting);
    const auto& difference = setting.quality.difference;
    const auto rank = [](const SettingResult& one) { return std::pair(is_faster(one), speedup_of(&one)); };
    if (lossless && (best.lossless == nullptr || rank(setting) > rank(*best.lossless))) {
      best.lossless = &setting;
    }
    if (lossless || !difference || !std::isfinite(difference->value)) continue;
    best.lossy = true;
    const bool near = is_faster(setting) && loses_little(setting, style);
    if (near && speedup_of(&setting) > speedup_of(best.near)) best.near = &setting;
  }
  const bool faster = best.lossless != nullptr && is_faster(*best.lossless);
  if (faster && speedup_of(best.near) <= speedup_of(best.lossless)) best.near = nullptr;
  return best;
}

}  // namespace

bool is_compared(const SettingResult& setting) {
  const auto rule = setting.params.find("window_rule");
  if (rule != setting.params.end() && *rule == "oracle") return false;  // knows the output: nobody can decode with it
  const double speedup = setting.speed.speedup.value;
  return setting.name != setting.baseline && !setting.repeats && !setting.failed_lines && std::isfinite(speedup) &&
         speedup > 0;
}

bool counts(const SettingResult& setting, const TaskResult& task) {
  return setting.baseline == task.baseline.name && is_compared(setting);
}

bool keeps_outputs(const SettingResult& setting) {
  return setting.lossless_check.value_or(false) && !setting.params.contains("model");
}

bool loses_little(const SettingResult& setting, const metrics::Metric& score) {
  const auto& difference = setting.quality.difference;
  if (keeps_outputs(setting)) return true;
  return setting.lossless_check.value_or(true) && difference && score.loss(0, difference->value) <= score.point();
}

std::string headline(const TaskResult& task) {
  const auto metric = metric_of(task);
  const Best best = best_settings(task, *metric);
  const std::string score = score_words(metric->leading_score());
  const std::string lossless = lossless_words(best, score);
  std::string near = near_words(best, score, *metric);
  if (lossless.empty() && near.empty()) return "";
  if (lossless.empty()) near.front() = near.starts_with("the ") ? 'T' : 'N';
  return lossless + (lossless.empty() || near.empty() ? "" : "; ") + near + ".";
}

namespace {

// Returns the means that are told behind a task: over the categories of which it is the last.
std::optional<TaskResult> means_behind(const TaskView& view) {
  const auto categories = categories_of(view);
  if (!are_summed_up(categories) || categories.back() != &view.task) return std::nullopt;
  return mean_task(categories);
}

}  // namespace

std::vector<std::string> headlines(const Results& results) {
  const auto reported = std::ranges::count_if(results.tasks, [](const TaskResult& task) { return !task.chooses; });
  std::vector<std::string> lines;
  const auto add = [&](const TaskResult& task) {
    std::string line = task.chooses ? "" : headline(task);
    if (!line.empty()) lines.push_back(reported > 1 ? task.name + ": " + line : std::move(line));
  };
  for (const TaskResult& task : results.tasks) {
    add(task);
    if (const auto mean = means_behind({results, task})) add(*mean);
  }
  return lines;
}

std::vector<const TaskResult*> page_order(const Results& results) {
  std::vector<const TaskResult*> tasks;
  for (const TaskResult& task : results.tasks) tasks.push_back(&task);
  std::ranges::stable_partition(tasks, [](const TaskResult* task) { return !task->chooses; });
  return tasks;
}

std::string task_heading(const TaskResult& task) {
  return task.chooses ? task.name + ", where settings were chosen" : task.name;
}

namespace {

using nlohmann::ordered_json;

constexpr size_t kConsoleWidth = 100;   // columns
constexpr size_t kDocumentWidth = 120;  // columns of a document's lines

std::string part_text(const Part& part) {
  std::string text;
  std::istringstream caption(part.caption);
  for (std::string line; std::getline(caption, line);) text += wrapped(line, kConsoleWidth);
  text += part.table.text(kConsoleWidth);
  for (const std::string& note : part.notes) text += wrapped(note, kConsoleWidth);
  return text;
}

// ---- Markdown ----

// Returns the page's stamp: suite, commit, date, machine, time and command. A device that is the CPU is named once.
std::string markdown_stamp(const Results& results, const std::string& wall_time) {
  const auto known = [&](const char* key) {
    const std::string text = results.environment_text(key);
    return text.empty() ? "not recorded" : text;
  };
  const std::string device = results.environment_text("device"), set = results.environment_text("instructions");
  return fmt::format("Suite `{}`, commit {}, {}.\n{}{}, cores: {}, threads: {}, {}{}.\n{}.\n\n```\n{}\n```\n",
                     results.suite, known("commit"), known("date"), known("cpu"),
                     device.empty() || device == known("cpu") ? "" : ", " + device, known("cores"), known("threads"),
                     set.empty() ? "" : set + ", ", known("dtype"),
                     wall_time.empty() ? "Wall time not recorded" : wall_time, known("command"));
}

// Returns a note as an item of a list, without the leading blanks that would make it code.
std::string list_item(const std::string& note) {
  const size_t begin = note.find_first_not_of(' ');
  return begin == std::string::npos ? "" : wrapped("- " + note.substr(begin), kDocumentWidth, 0, 2);
}

// Returns the notes on a task's errors.
std::string error_items(const TaskView& view) {
  std::string text;
  const std::vector<Part> parts = setting_parts(view, Form::kBrief);
  for (const std::string& note : parts.front().notes) {
    if (note.starts_with('!')) text += list_item(note) + "\n";
  }
  return text;
}

// Marks around what people write into a page: the answer's question first, then what it shows.
constexpr const char* kByHand = "<!-- by hand";
constexpr const char* kEnd = "<!-- end -->";

// Returns what a page says before everything else: the answer, marks, stamp, and the rows that matter most. Of a data
// set with categories these are means over them.
std::string first_screen(const TaskView& view, const std::string& wall_time) {
  const auto categories = categories_of(view);
  const bool summed = are_summed_up(categories);
  const TaskResult task = summed ? mean_task(categories) : view.task;
  const std::string answer = headline(task), notes = summed ? "" : error_items(view);
  std::string table = leading_markdown(task);
  if (summed) table += "\nSpeedup by category:\n\n" + category_markdown(task, categories);
  return fmt::format(
      "{0}{1}: stays when the page is written again -->\n* Question:\n* Target:\n* Expected:\n* Held:\n{2}\n\n{3}\n"
      "{4}, {5} lines:\n\n{6}\n{7}{1}: stays, too -->\n{2}\n",
      answer.empty() ? "" : wrapped(answer, kDocumentWidth, 0, 0) + "\n", kByHand, kEnd,
      markdown_stamp(view.results, wall_time), task.name, task.lines, table, notes);
}

// ---- results.csv ----

// Adds the values below `json` by their keys: "speed.speedup".
void add_flat(const std::string& place, const ordered_json& json, ordered_json& row) {
  for (const auto& [key, value] : json.items()) {
    if (value.is_object() && key != "params") {
      add_flat(place + key + ".", value, row);
    } else {
      row[place + key] = value;
    }
  }
}

std::string text_of_cell(const ordered_json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

std::string results_table(const Results& results) {
  std::string text;
  for (const TaskResult& task : results.tasks) {
    for (const Section& section : sections()) {
      if (!section.console) continue;
      for (const Part& part : section.parts({results, task}, Form::kBrief)) {
        if (!part.table.empty()) text += (text.empty() ? "" : "\n") + part_text(part);
      }
    }
  }
  const std::vector<std::string> lines = headlines(results);
  if (!text.empty() && !lines.empty()) text += "\n";
  for (const std::string& line : lines) text += wrapped(line, kConsoleWidth);
  return text;
}

std::string report_markdown(const Results& results, const std::string& wall_time) {
  const std::vector<const TaskResult*> tasks = page_order(results);
  if (tasks.empty()) throw UserError({results.suite, "a page needs results of a task", "one task", "none", ""});
  std::string text = fmt::format("# {}\n\n", results.suite) + first_screen({results, *tasks.front()}, wall_time);
  const auto first = categories_of({results, *tasks.front()});  // of which the first screen may have told the means
  const bool summed = are_summed_up(first);
  std::string others;
  const auto add = [&](const TaskResult& task) {
    others += list_item(fmt::format("{}, {} lines: {}", task.name, task.lines, headline(task)));
  };
  for (const TaskResult* one : tasks) {
    if ((one == tasks.front() && !summed) || one->chooses) continue;
    add(*one);
    others += error_items({results, *one});
    const auto mean = means_behind({results, *one});
    if (mean && categories_of({results, *one}) != first) add(*mean);
  }
  return others.empty() ? text : text + (summed ? "\nBy task:\n\n" : "\nOther tasks:\n\n") + others;
}

std::string keep_handwritten(std::string page, const std::string& earlier, const std::string& where) {
  const auto marks = [&](const std::string& mark) {
    return (earlier.size() - replace_all(earlier, mark, "").size()) / mark.size();
  };
  const bool paired = marks(kByHand) == marks(kEnd);  // a part that holds an end of its own would lose what follows
  size_t end = 0;
  for (size_t at = page.find(kByHand); at != std::string::npos; at = page.find(kByHand, at + 1)) {
    const size_t begin = earlier.find(kByHand, end);
    end = earlier.find(kEnd, begin);
    const bool last = page.find(kByHand, at + 1) == std::string::npos;
    if (!paired || end == std::string::npos || last != (earlier.find(kByHand, end) == std::string::npos)) {
      throw UserError({.where = where,
                       .what = "what was written into this page by hand is not marked as in a page of this program",
                       .expected = fmt::format("two parts from \"{}\" to \"{}\"", kByHand, kEnd),
                       .found = "more or fewer of them",
                       .hint = "move the file away, write the page anew, and copy your text between its marks"});
    }
    page.replace(at, page.find(kEnd, at) - at, earlier, begin, end - begin);
  }
  return page;
}

ordered_json results_rows(const Results& results) {
  std::vector<ordered_json> lines;
  ordered_json columns = ordered_json::object();  // with nulls
  const ordered_json json = to_json(results);
  for (const ordered_json& task : json.at("tasks")) {
    const auto add = [&](const ordered_json& setting) {
      ordered_json& line = lines.emplace_back(ordered_json::object());
      line["task"] = task.at("name");
      add_flat("", setting, line);
      for (const auto& [column, value] : line.items()) columns.emplace(column, nullptr);
    };
    add(task.at("baseline"));
    for (const ordered_json& setting : task.at("runs")) add(setting);
  }
  auto rows = ordered_json::array();
  for (const ordered_json& line : lines) {
    rows.push_back(columns);
    rows.back().update(line);
  }
  return rows;
}

std::string results_csv(const Results& results) {
  const ordered_json rows = results_rows(results);
  if (rows.empty()) return "";
  std::vector<Column> headers;
  for (const auto& [header, value] : rows.front().items()) headers.push_back({header});
  Table table(std::move(headers));
  for (const ordered_json& row : rows) {
    std::vector<std::string> cells;
    for (const auto& cell : row) cells.push_back(text_of_cell(cell));
    table.add_row(std::move(cells));
  }
  return table.csv();
}

}  // namespace draftsmith::evaluate
