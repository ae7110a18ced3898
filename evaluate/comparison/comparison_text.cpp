// Tables of a comparison, for the console and as Markdown.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/table.h"
#include "evaluate/comparison/comparison.h"
#include "evaluate/report/section.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kMostOptions = 12;  // of the suite that are listed

// Marks a change that is more than noise.
constexpr const char* kSignificantMark = "*";

std::string arrow(const std::string& first, const std::string& second) {
  if (first.empty() && second.empty()) return "";
  return first == second ? first : first + " → " + second;
}

// Returns a ratio as the change in percent: "-4.2 %*".
std::string percent(const std::optional<SpeedChange>& change) {
  if (!change) return "";
  return fmt::format("{:+.1f} %{}", 100 * (change->ratio - 1), change->significant() ? kSignificantMark : "");
}

std::string quality_change(const SettingChange& setting, const TaskChange& task) {
  if (!setting.first_quality || !setting.second_quality) return "";
  const bool significant = setting.quality && setting.quality->p_value < 0.05;
  return fmt::format("{:+.{}f}{}", *setting.second_quality - *setting.first_quality, task.digits,
                     significant ? kSignificantMark : "");
}

Table table_of(const TaskChange& task) {
  const std::string score = task.score.empty() ? "score" : score_words(task.score);
  Table table({{"run", Align::kLeft}, {score}, {"change"}, {"p"}, {"speedup"}, {"change"}, {"tokens/s"}, {"change"}});
  for (const SettingChange& one : task.settings) {
    table.add_row(
        {one.name, arrow(fixed(one.first_quality, task.digits), fixed(one.second_quality, task.digits)),
         quality_change(one, task), one.quality ? fixed(one.quality->p_value, 3) : "",
         one.speedup ? arrow(fixed(one.speedup->first, 2), fixed(one.speedup->second, 2)) : "", percent(one.speedup),
         one.tokens_per_second ? arrow(fixed(one.tokens_per_second->first, 0), fixed(one.tokens_per_second->second, 0))
                               : "",
         percent(one.tokens_per_second)});
  }
  table.drop_empty_columns();
  return table;
}

void add_names(const char* what, const std::vector<std::string>& names, std::vector<std::string>& notes) {
  if (!names.empty()) notes.push_back(fmt::format("{}: {}", what, fmt::join(names, ", ")));
}

std::vector<std::string> notes_of(const TaskChange& task) {
  std::vector<std::string> notes = task.notes;
  if (task.lower_is_better) notes.push_back(fmt::format("{}: lower is better", score_words(task.score)));
  add_names("! missing settings", task.missing, notes);
  add_names("new settings", task.added, notes);
  const bool untested = std::ranges::any_of(task.settings, [](const SettingChange& one) {
    return (one.first_quality && !one.quality) || (one.tokens_per_second && !one.tokens_per_second->interval);
  });
  if (untested) {
    notes.emplace_back("without p-values and marks: lines.jsonl with scores of the same lines must lie beside both");
  }
  return notes;
}

std::vector<std::string> notes_of(const Comparison& comparison) {
  std::vector<std::string> notes;
  add_names("! missing tasks", comparison.missing_tasks, notes);
  add_names("new tasks", comparison.added_tasks, notes);
  for (const std::string& change : comparison.environment) notes.push_back("other environment: " + change);
  for (size_t i = 0; i < std::min(comparison.options.size(), kMostOptions); ++i) {
    notes.push_back("other option: " + comparison.options[i]);
  }
  if (comparison.options.size() > kMostOptions) {
    notes.push_back(fmt::format("and {} other options more", comparison.options.size() - kMostOptions));
  }
  if (!comparison.tasks.empty()) {
    notes.push_back(
        fmt::format("{} more than noise: the interval of a ratio excludes 1, or p < 0.05. Speedups are over "
                    "each evaluation's own baseline; tokens/s also change with the machine's load.",
                    kSignificantMark));
  }
  return notes;
}

}  // namespace

std::string comparison_text(const Comparison& comparison) {
  std::string text;
  for (const TaskChange& task : comparison.tasks) {
    text += task.name + "\n" + table_of(task).text_with_whole_names(kColumns);
    for (const std::string& note : notes_of(task)) text += wrapped(note, kColumns);
    text += "\n";
  }
  for (const std::string& note : notes_of(comparison)) text += wrapped(note, kColumns);
  return text;
}

std::string comparison_markdown(const Comparison& comparison) {
  const auto items = [](const std::vector<std::string>& notes) {
    std::string text = notes.empty() ? "" : "\n";
    for (const std::string& note : notes) text += "* " + note + "\n";
    return text;
  };
  std::string text = "# Comparison\n";
  for (const TaskChange& task : comparison.tasks) {
    text += fmt::format("\n## {}\n\n{}{}", task.name, table_of(task).markdown(), items(notes_of(task)));
  }
  return text + items(notes_of(comparison));
}

}  // namespace draftsmith::evaluate
