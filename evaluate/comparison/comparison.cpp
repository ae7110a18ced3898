#include "evaluate/comparison/comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/table.h"
#include "base/util.h"
#include "evaluate/measure/speed.h"
#include "evaluate/report/sections.h"
#include "metrics/metric.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

constexpr double kSignificantP = 0.05;
constexpr size_t kColumns = 100;

bool is_positive(double value) {
  return std::isfinite(value) && value > 0;
}

// Returns two numbers as "1.93 → 1.85", or one if they look alike.
std::string arrow(double first, double second, int digits) {
  const std::string text = fixed(first, digits);
  return text == fixed(second, digits) ? text : text + " → " + fixed(second, digits);
}

// Speed in both evaluations. A ratio of NaN is unknown, and so is an interval of NaNs.
struct SpeedChange {
  double first = NAN;
  double second = NAN;
  Ratio ratio = {.value = NAN, .interval = {NAN, NAN}};

  bool has_interval() const { return is_positive(ratio.interval.low) && is_positive(ratio.interval.high); }
  // Returns whether the interval lies on one side of 1.
  bool significant() const { return has_interval() && (ratio.interval.low > 1 || ratio.interval.high < 1); }
  // Returns both speeds, and the change in percent: "-4.2 %*".
  std::pair<std::string, std::string> words(int digits) const {
    if (!is_positive(ratio.value)) return {};
    return {arrow(first, second, digits),
            fmt::format("{:+.1f} %{}", 100 * (ratio.value - 1), significant() ? "*" : "")};
  }
};

// Returns the change of a setting's speedup, from pairs of timings where both are known; else the errors of both
// measurements are taken as independent.
SpeedChange speedup_change(const SettingResult& first, const std::optional<PairedRatio>& first_pairs,
                           const SettingResult& second, const std::optional<PairedRatio>& second_pairs) {
  if (first.name == first.baseline) return {};
  const auto log_width = [](const metrics::Interval& interval) { return std::log(interval.high / interval.low) / 2; };
  const Ratio& a = first.speed.speedup;
  const Ratio& b = second.speed.speedup;
  if (first_pairs && second_pairs) {
    return {.first = a.value, .second = b.value, .ratio = (*second_pairs / *first_pairs).ratio()};
  }
  const double ratio = b.value / a.value;
  const double width = std::exp(std::hypot(log_width(a.interval), log_width(b.interval)));
  return {.first = a.value, .second = b.value, .ratio = {.value = ratio, .interval = {ratio / width, ratio * width}}};
}

// Comparison of a task: a row for each setting that both evaluations have.
class TaskComparison {
 public:
  TaskComparison(const TaskResult& first, const TaskResult& second, const Limits& limits,
                 const metrics::ResamplingOptions& resampling)
      : first_(first),
        second_(second),
        limits_(limits),
        resampling_(resampling),
        score_of_(metric_of(first)),
        score_(*score_of_) {
    note_other("metric", first.metric, second.metric);
    note_other("scoring", first.signature, second.signature);
    comparable_ = notes_.empty();
    note_other("number of lines", first.lines, second.lines);
    note_other("max_new_tokens", first.max_new_tokens, second.max_new_tokens);
    for (const SettingFailure& failure : second.failures) {
      notes_.push_back(fmt::format("! {} failed during {}: {}", failure.setting, failure.during, failure.message));
    }
    if (score_.lower_is_better()) notes_.push_back(score_words(score_.leading_score()) + ": lower is better");
  }

  void compare(const Lines& first_lines, const Lines& second_lines, Comparison& result) {
    const std::string score = score_.leading_score().empty() ? "score" : score_words(score_.leading_score());
    Table table({{"run", Align::kLeft}, {score}, {"change"}, {"p"}, {"speedup"}, {"change"}, {"tokens/s"}, {"change"}});
    for (const SettingResult* setting : first_.rows()) {
      if (const SettingResult* other = second_.find(setting->name)) {
        add_row(*setting, first_lines, *other, second_lines, table);
      } else {
        notes_.push_back("! missing setting: " + setting->name);
        if (limits_.slower || limits_.worse) fail(*setting, "the setting is missing");
      }
    }
    for (const SettingResult* setting : second_.rows()) {
      if (first_.find(setting->name) == nullptr) notes_.push_back("new setting: " + setting->name);
    }
    if (untested_) {
      notes_.emplace_back("without p-values and marks: lines.jsonl with scores of the same lines must lie beside both");
    }
    table.drop_empty_columns();
    result.text += first_.name + "\n" + table.text(kColumns);
    for (const std::string& note : notes_) result.text += wrapped(note, kColumns);
    result.text += "\n";
    result.failures.insert(result.failures.end(), failures_.begin(), failures_.end());
  }

 private:
  template <class T>
  void note_other(const char* what, const T& one, const T& other) {
    if (one != other) notes_.push_back(fmt::format("! other {}: {} → {}", what, one, other));
  }
  void fail(const SettingResult& setting, const std::string& words) {
    failures_.push_back(fmt::format("{}, {}: {}", first_.name, setting.name, words));
  }

  // Returns the lines of a setting; nullptr: unknown.
  const SettingLines* lines_of(const Lines& lines, const SettingResult& setting) const {
    const auto found = lines.find({first_.name, setting.chosen ? setting.chosen->setting : setting.name});
    return found == lines.end() ? nullptr : &found->second;
  }

  // Returns the speedup from pairs of timings; nothing where the lines have none.
  std::optional<PairedRatio> pairs_of(const Lines& lines, const SettingResult& setting, const TaskResult& task) const {
    const SettingResult* base = task.find(setting.baseline);
    const SettingLines* own = lines_of(lines, setting);
    const SettingLines* baseline = base == nullptr ? nullptr : lines_of(lines, *base);
    if (own == nullptr || baseline == nullptr || own->records.size() != baseline->records.size()) return std::nullopt;
    if (std::ranges::all_of(own->records, [](const auto& line) { return line.baseline.empty(); })) return std::nullopt;
    return paired_speedup(own->records, baseline->records);
  }

  void add_row(const SettingResult& a, const Lines& first_lines, const SettingResult& b, const Lines& second_lines,
               Table& table) {
    const SettingLines* a_lines = lines_of(first_lines, a);
    const SettingLines* b_lines = lines_of(second_lines, b);
    const auto quality = quality_cells(a, a_lines, b, b_lines);
    const SpeedChange speedup =
        speedup_change(a, pairs_of(first_lines, a, first_), b, pairs_of(second_lines, b, second_));
    SpeedChange rate{.first = a.speed.tokens_per_second, .second = b.speed.tokens_per_second};
    rate.ratio.value = rate.second / rate.first;
    if (a_lines != nullptr && b_lines != nullptr && a_lines->records.size() == b_lines->records.size()) {
      SettingRecords alone = b_lines->records;  // beside the other evaluation in place of its own baseline
      for (LineRecord& line : alone) line.baseline.clear();
      const Ratio measured = paired_speedup(alone, a_lines->records).ratio();
      if (is_positive(measured.value)) rate.ratio = measured;
    }
    untested_ = untested_ || (is_positive(rate.ratio.value) && !rate.has_interval());
    const SpeedChange& change = limits_.by_tokens_per_second ? rate : speedup;
    const bool noise = a.repeats || (change.has_interval() && !change.significant());
    if (limits_.slower && std::isfinite(change.first) && !std::isfinite(change.second)) fail(a, "has no speed");
    if (limits_.slower && change.ratio.value < 1 - *limits_.slower && !noise) {
      fail(a, fmt::format("slower by {:.1f} % ({} {:.2f} → {:.2f})", 100 * (1 - change.ratio.value),
                          limits_.by_tokens_per_second ? "tokens/s" : "speedup", change.first, change.second));
    }
    const auto [speedups, faster] = speedup.words(2);
    const auto [rates, more] = rate.words(0);
    table.add_row({a.name, quality[0], quality[1], quality[2], speedups, faster, rates, more});
  }

  // Returns both scores, the change and its p-value, by the paired bootstrap over lines.
  std::array<std::string, 3> quality_cells(const SettingResult& a, const SettingLines* a_lines, const SettingResult& b,
                                           const SettingLines* b_lines) {
    const metrics::NamedScore* first = a.quality.find(score_.leading_score());
    const metrics::NamedScore* second = b.quality.find(score_.leading_score());
    if (!comparable_ || first == nullptr || second == nullptr || !std::isfinite(first->value + second->value)) {
      if (limits_.worse && (first != nullptr || second != nullptr)) fail(a, "has no comparable quality");
      return {};
    }
    double p = NAN;
    if (a_lines != nullptr && b_lines != nullptr && a_lines->statistics.lines() > 1 &&
        a_lines->statistics.width == b_lines->statistics.width &&
        a_lines->statistics.width >= score_.statistics({{}, {}, {}}).width &&
        a_lines->statistics.lines() == b_lines->statistics.lines()) {
      p = metrics::paired_bootstrap(b_lines->statistics, a_lines->statistics, score_.function(), resampling_).p_value;
    }
    untested_ = untested_ || std::isnan(p);
    const int digits = score_.digits();
    const std::string scores = arrow(first->value, second->value, digits);
    const double lost = score_.loss(first->value, second->value) / score_.point();
    if (limits_.worse && lost > *limits_.worse && !(p >= kSignificantP)) {
      fail(a, fmt::format("worse by {:.2f} points ({}{})", lost, scores,
                          std::isnan(p) ? "" : fmt::format(", p = {:.3f}", p)));
    }
    return {scores, fmt::format("{:+.{}f}{}", second->value - first->value, digits, p < kSignificantP ? "*" : ""),
            fixed(p, 3)};
  }

  const TaskResult& first_;
  const TaskResult& second_;
  const Limits& limits_;
  const metrics::ResamplingOptions& resampling_;
  std::unique_ptr<const metrics::Metric> score_of_;
  const metrics::Metric& score_;
  bool comparable_ = true;  // both are scored alike
  bool untested_ = false;   // an interval or a p-value is unknown
  std::vector<std::string> notes_;
  std::vector<std::string> failures_;
};

// Returns a note for each value of two objects that differs, with its first difference: "other option: threads: 2 → 4",
// "other option: task/0/limit: 100 → 200".
std::string json_notes(const std::string& what, const ordered_json& first, const ordered_json& second) {
  constexpr std::array<std::string_view, 5> kAlwaysOthers{"date", "command", "other_load", "slowdown", "name"};
  std::vector<std::string> keys;
  for (const ordered_json* json : {&first, &second}) {
    for (const auto& [key, value] : json->items()) add_new(keys, key);
  }
  std::string notes;
  for (const std::string& key : keys) {
    if (std::ranges::find(kAlwaysOthers, key) != kAlwaysOthers.end()) continue;
    const auto value = [&](const ordered_json& json) { return json.contains(key) ? json.at(key) : ordered_json(); };
    const ordered_json changes = ordered_json::diff(value(first), value(second));
    if (changes.empty()) continue;
    const std::string place = changes.front().at("path");
    const bool added = changes.front().at("op") == "add";
    const auto words = [](const ordered_json& json) { return json.is_null() ? "nothing" : brief(json); };
    notes += wrapped(fmt::format("other {}: {}{}: {} → {}", what, key, place,
                                 added ? "nothing" : words(value(first).at(ordered_json::json_pointer(place))),
                                 words(changes.front().value("value", ordered_json()))),
                     kColumns);
  }
  return notes;
}

// Returns the times in two lists of a line. Errors: nlohmann::json::exception.
std::vector<infer::PhaseSeconds> times_of(const nlohmann::json& entry, const std::string& prefix) {
  std::vector<infer::PhaseSeconds> times;
  const auto& decode = entry.at(prefix + "decode_seconds");
  for (size_t i = 0; i < entry.at(prefix + "seconds").size(); ++i) {
    const double own = decode.at(i);
    times.push_back({.prefill = entry.at(prefix + "seconds").at(i).get<double>() - own, .verify = own});
  }
  return times;
}

// Adds the line of a file to its setting. Errors: std::invalid_argument, nlohmann::json::exception.
void add_line(const nlohmann::json& entry, Lines& lines) {
  SettingLines& setting = lines[{entry.at("task"), entry.at("run")}];
  LineRecord& record = setting.records.emplace_back();
  entry.at("turn").get_to(record.turn);
  entry.at("tokens").get_to(record.stats.emitted);
  record.repetitions = times_of(entry, "");
  if (entry.contains("baseline_seconds")) record.baseline = times_of(entry, "baseline_");
  if (entry.contains("failure")) record.failure = entry.at("failure").get<std::string>();
  if (!entry.contains("statistics")) return;
  const auto statistics = entry.at("statistics").get<std::vector<double>>();
  if (!setting.statistics.values.empty() && setting.statistics.width != std::ssize(statistics)) {
    throw std::invalid_argument("its statistics are not as many as those of the lines before");
  }
  setting.statistics.width = std::ssize(statistics);
  setting.statistics.values.insert(setting.statistics.values.end(), statistics.begin(), statistics.end());
}

// Returns the content of a lines.jsonl; nothing if there is no such file. Errors: UserError with the line of a value
// that no evaluation writes.
Lines load_lines(const std::filesystem::path& file) {
  Lines lines;
  std::ifstream input(file);
  int64_t number = 0;
  for (std::string text; std::getline(input, text);) {
    ++number;
    try {
      add_line(nlohmann::json::parse(text), lines);
    } catch (const std::exception& error) {
      throw UserError({.where = fmt::format("{}:{}", file.string(), number),
                       .what = "is no line of an evaluation",
                       .expected = "an object with task, run, turn, tokens, seconds and decode_seconds",
                       .found = error.what(),
                       .hint = "evaluate again, or remove the file to compare without it"});
    }
  }
  return lines;
}

}  // namespace

Evaluation load_evaluation(const std::filesystem::path& file) {
  return {.file = file, .results = load_results(file), .lines = load_lines(file.parent_path() / "lines.jsonl")};
}

Comparison compare(const Evaluation& first, const Evaluation& second, const Limits& limits,
                   const metrics::ResamplingOptions& resampling) {
  const auto find = [](const Results& results, const std::string& name) {
    const auto found = std::ranges::find(results.tasks, name, &TaskResult::name);
    return found == results.tasks.end() ? nullptr : &*found;
  };
  Comparison comparison;
  for (const TaskResult& task : first.results.tasks) {
    if (const TaskResult* other = find(second.results, task.name)) {
      TaskComparison(task, *other, limits, resampling).compare(first.lines, second.lines, comparison);
      continue;
    }
    comparison.text += wrapped("! missing task: " + task.name, kColumns);
    if (limits.slower || limits.worse) comparison.failures.push_back(task.name + ": the task is missing");
  }
  for (const TaskResult& task : second.results.tasks) {
    if (find(first.results, task.name) == nullptr) comparison.text += wrapped("new task: " + task.name, kColumns);
  }
  comparison.text += json_notes("environment", first.results.environment, second.results.environment) +
                     json_notes("option", first.results.options, second.results.options) +
                     wrapped(
                         "* more than noise: the interval of a ratio excludes 1, or p < 0.05. Speedups are over "
                         "each evaluation's own baseline; tokens/s also change with the machine's load.",
                         kColumns);
  return comparison;
}

}  // namespace draftsmith::evaluate
