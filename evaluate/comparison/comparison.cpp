#include "evaluate/comparison/comparison.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "evaluate/comparison/json_changes.h"
#include "evaluate/measure/speed.h"
#include "evaluate/report/section.h"
#include "metrics/registry.h"

namespace draftsmith::evaluate {
namespace {

constexpr double kSignificant = 0.05;  // p-value

// Setting in one of the evaluations.
struct Measured {
  const TaskResult& task;
  const SettingResult& setting;
  const SettingLines* lines;  // nullptr: unknown
};

const SettingLines* lines_of(const Evaluation& evaluation, const TaskResult& task, const SettingResult& setting) {
  const auto found = evaluation.lines.find({task.name, setting.chosen ? setting.chosen->setting : setting.name});
  return found == evaluation.lines.end() ? nullptr : &found->second;
}

std::optional<double> leading_score(const SettingResult& setting, const std::string& score) {
  const metrics::NamedScore* found = setting.quality.find(score);
  return found != nullptr && std::isfinite(found->value) ? std::optional(found->value) : std::nullopt;
}

bool known(double value) {
  return std::isfinite(value) && value > 0;
}

// Returns half of an interval's width on the scale of logarithms.
std::optional<double> log_width(const metrics::Interval& interval) {
  if (!known(interval.low) || !known(interval.high)) return std::nullopt;
  return (std::log(interval.high) - std::log(interval.low)) / 2;
}

// Returns the change of the speedup; errors of both measurements are independent.
std::optional<SpeedChange> speedup_change(const Measured& first, const Measured& second) {
  const Ratio& a = first.setting.speed.speedup;
  const Ratio& b = second.setting.speed.speedup;
  if (!known(a.value) || !known(b.value) || first.setting.name == first.setting.baseline) return std::nullopt;
  SpeedChange change{.first = a.value, .second = b.value, .ratio = b.value / a.value, .interval = {}};
  const auto width_a = log_width(a.interval);
  const auto width_b = log_width(b.interval);
  if (width_a && width_b) {
    const double width = std::exp(std::hypot(*width_a, *width_b));
    change.interval = {change.ratio / width, change.ratio * width};
  }
  return change;
}

std::optional<SpeedChange> rate_change(const Measured& first, const Measured& second,
                                       const metrics::ResamplingOptions& resampling) {
  const double a = first.setting.speed.tokens_per_second;
  const double b = second.setting.speed.tokens_per_second;
  if (!known(a) || !known(b)) return std::nullopt;
  SpeedChange change{.first = a, .second = b, .ratio = b / a, .interval = {}};
  if (first.lines != nullptr && second.lines != nullptr &&
      first.lines->records.size() == second.lines->records.size()) {
    const Ratio ratio = measure_speed(second.lines->records, first.lines->records, resampling).speedup;
    if (known(ratio.value)) change = {.first = a, .second = b, .ratio = ratio.value, .interval = ratio.interval};
  }
  return change;
}

std::optional<QualityDifference> quality_change(const Measured& first, const Measured& second,
                                                const metrics::ResamplingOptions& resampling) {
  if (first.lines == nullptr || second.lines == nullptr) return std::nullopt;
  const metrics::LineStatistics& a = first.lines->statistics;
  const metrics::LineStatistics& b = second.lines->statistics;
  if (a.lines() == 0 || a.width != b.width || a.lines() != b.lines()) return std::nullopt;
  const auto metric = metrics::make_metric(first.task.metric_options());
  const metrics::PairedTest test = metrics::paired_bootstrap(b, a, metric->function(), resampling);
  return QualityDifference{.value = test.difference, .interval = test.difference_interval, .p_value = test.p_value};
}

SettingChange change_of(const Measured& first, const Measured& second, const std::string& score,
                        const metrics::ResamplingOptions& resampling) {
  SettingChange change;
  change.name = first.setting.name;
  change.repeats = first.setting.repeats;
  if (!score.empty()) {
    change.first_quality = leading_score(first.setting, score);
    change.second_quality = leading_score(second.setting, score);
    change.quality = quality_change(first, second, resampling);
  }
  change.speedup = speedup_change(first, second);
  change.tokens_per_second = rate_change(first, second, resampling);
  return change;
}

const TaskResult* find_task(const Results& results, const std::string& name) {
  const auto found = std::ranges::find(results.tasks, name, &TaskResult::name);
  return found == results.tasks.end() ? nullptr : &*found;
}

// Returns what makes the tasks' numbers incomparable.
std::vector<std::string> task_notes(const TaskResult& first, const TaskResult& second) {
  std::vector<std::string> notes;
  const auto note = [&](const std::string& what, const std::string& a, const std::string& b) {
    if (a != b) notes.push_back(fmt::format("! other {}: {} → {}", what, a, b));
  };
  note("metric", first.metric, second.metric);
  note("scoring", first.signature, second.signature);
  note("number of lines", std::to_string(first.lines), std::to_string(second.lines));
  note("max_new_tokens", std::to_string(first.max_new_tokens), std::to_string(second.max_new_tokens));
  for (const SettingFailure& failure : second.failures) {
    notes.push_back(fmt::format("! {} failed during {}: {}", failure.setting, failure.during, failure.message));
  }
  return notes;
}

TaskChange task_change(const Evaluation& first, const TaskResult& a, const Evaluation& second, const TaskResult& b,
                       const metrics::ResamplingOptions& resampling) {
  const ScoreStyle style = score_style(a);
  TaskChange change{.name = a.name,
                    .score = style.name,
                    .digits = style.digits,
                    .point = style.point,
                    .lower_is_better = style.lower_is_better,
                    .settings = {},
                    .missing = {},
                    .added = {},
                    .notes = task_notes(a, b)};
  const std::string score = a.metric == b.metric && a.signature == b.signature ? style.name : "";
  for (const SettingResult* row : a.rows()) {
    if (const SettingResult* other = b.find(row->name)) {
      change.settings.push_back(
          change_of({a, *row, lines_of(first, a, *row)}, {b, *other, lines_of(second, b, *other)}, score, resampling));
    } else {
      change.missing.push_back(row->name);
    }
  }
  for (const SettingResult* row : b.rows()) {
    if (a.find(row->name) == nullptr) change.added.push_back(row->name);
  }
  return change;
}

std::string exceeded_quality(const SettingChange& setting, const TaskChange& task, double limit) {
  if (!setting.first_quality || !setting.second_quality) return "";
  const ScoreStyle style{.lower_is_better = task.lower_is_better};
  const double lost = style.loss(*setting.first_quality, *setting.second_quality) / task.point;
  if (lost <= limit || (setting.quality && setting.quality->p_value >= kSignificant)) return "";
  return fmt::format("{}, {}: worse by {:.2f} points ({:.{}f} → {:.{}f}{})", task.name, setting.name, lost,
                     *setting.first_quality, task.digits, *setting.second_quality, task.digits,
                     setting.quality ? fmt::format(", p = {:.3f}", setting.quality->p_value) : "");
}

std::string exceeded_speed(const SettingChange& setting, const TaskChange& task, const Limits& limits) {
  const auto& change = limits.by_tokens_per_second ? setting.tokens_per_second : setting.speedup;
  if (setting.repeats || !change || change->ratio >= 1 - *limits.slower) return "";
  if (change->interval && !change->significant()) return "";
  return fmt::format("{}, {}: slower by {:.1f} % ({} {:.2f} → {:.2f})", task.name, setting.name,
                     100 * (1 - change->ratio), limits.by_tokens_per_second ? "tokens/s" : "speedup", change->first,
                     change->second);
}

}  // namespace

Evaluation load_evaluation(const std::filesystem::path& file) {
  return {.file = file, .results = load_results(file), .lines = load_lines(file.parent_path() / "lines.jsonl")};
}

Comparison compare(const Evaluation& first, const Evaluation& second, const metrics::ResamplingOptions& resampling) {
  // What is another in each evaluation says nothing.
  static const std::set<std::string> kAlwaysOthers{"date", "command", "other_load"};
  Comparison comparison;
  for (const TaskResult& task : first.results.tasks) {
    if (const TaskResult* other = find_task(second.results, task.name)) {
      comparison.tasks.push_back(task_change(first, task, second, *other, resampling));
    } else {
      comparison.missing_tasks.push_back(task.name);
    }
  }
  for (const TaskResult& task : second.results.tasks) {
    if (find_task(first.results, task.name) == nullptr) comparison.added_tasks.push_back(task.name);
  }
  comparison.environment = json_changes(first.results.environment, second.results.environment, kAlwaysOthers);
  comparison.options = json_changes(first.results.options, second.results.options, {"run", "name"});
  return comparison;
}

std::vector<std::string> exceeded(const Comparison& comparison, const Limits& limits) {
  std::vector<std::string> lines;
  if (!limits.any()) return lines;
  for (const std::string& task : comparison.missing_tasks) lines.push_back(task + ": the task is missing");
  for (const TaskChange& task : comparison.tasks) {
    for (const std::string& name : task.missing) {
      lines.push_back(fmt::format("{}, {}: the setting is missing", task.name, name));
    }
    for (const SettingChange& setting : task.settings) {
      const std::string worse = limits.worse ? exceeded_quality(setting, task, *limits.worse) : "";
      const std::string slower = limits.slower ? exceeded_speed(setting, task, limits) : "";
      for (const std::string& line : {worse, slower}) {
        if (!line.empty()) lines.push_back(line);
      }
    }
  }
  return lines;
}

}  // namespace draftsmith::evaluate
