// Comparison of two evaluations, for example of two versions of a program: what changed for each setting, and whether
// the change is more than noise.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Results with the lines they were computed from.
struct Evaluation {
  std::filesystem::path file;  // the results.json
  Results results;
  Lines lines;  // empty: there is no lines.jsonl
};

// Returns the results in a file, with the lines.jsonl beside it. Errors: UserError, as load_results() and load_lines().
Evaluation load_evaluation(const std::filesystem::path& file);

// Ratio of a speed in the second evaluation to that in the first.
struct SpeedChange {
  double first = 0;
  double second = 0;
  double ratio = 0;
  std::optional<metrics::Interval> interval;  // 95 %; absent: unknown

  // Returns whether the interval lies on one side of 1.
  bool significant() const { return interval && (interval->low > 1 || interval->high < 1); }
};

// Setting of a task that both evaluations have.
struct SettingChange {
  std::string name;
  std::optional<std::string> repeats;   // SettingResult::repeats: its speedup is noise
  std::optional<double> first_quality;  // leading scores
  std::optional<double> second_quality;
  std::optional<QualityDifference> quality;  // second less first, by the paired bootstrap over lines
  // Speedups over each evaluation's own baseline, measured in turns with it, so that the machine's drift cancels. Their
  // intervals are those of both evaluations together.
  std::optional<SpeedChange> speedup;
  std::optional<SpeedChange> tokens_per_second;  // the interval is over lines, and knows no drift between evaluations
};

struct TaskChange {
  std::string name;
  std::string score;  // leading score; empty: nothing is scored
  int digits = 2;     // of scores, as ScoreStyle
  double point = 1;
  bool lower_is_better = false;
  std::vector<SettingChange> settings;
  std::vector<std::string> missing;  // settings that only the first evaluation has
  std::vector<std::string> added;    // settings that only the second one has
  std::vector<std::string> notes;    // what makes numbers incomparable
};

struct Comparison {
  std::vector<TaskChange> tasks;
  std::vector<std::string> missing_tasks;
  std::vector<std::string> added_tasks;
  std::vector<std::string> environment;  // "threads: 2 → 4"
  std::vector<std::string> options;      // of the suite, likewise
};

// Returns what changed from `first` to `second`. Settings are the same if task and name are.
Comparison compare(const Evaluation& first, const Evaluation& second, const metrics::ResamplingOptions& resampling);

// Changes that fail a comparison.
struct Limits {
  std::optional<double> slower;       // share of the speed, 0..1: a larger loss fails
  std::optional<double> worse;        // points of the leading score
  bool by_tokens_per_second = false;  // false: by speedup

  bool any() const { return slower || worse; }
};

// Returns a line for each setting that lost more than the limits allow, and for each missing one. Losses that may be
// noise do not fail: the interval of a ratio must lie below 1, the p-value of a difference below 0.05, where they are
// known.
std::vector<std::string> exceeded(const Comparison& comparison, const Limits& limits);

// Returns the comparison as tables of at most 100 columns.
std::string comparison_text(const Comparison& comparison);
// Returns the comparison as Markdown.
std::string comparison_markdown(const Comparison& comparison);

}  // namespace draftsmith::evaluate
