// Comparison of two evaluations, for example of two versions of a program: what changed for each setting, and whether
// the change is more than noise.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/measure/measurement_store.h"
#include "evaluate/results/results.h"
#include "metrics/resampling.h"

namespace draftsmith::evaluate {

// Lines of a setting on a task as lines.jsonl has them. Records have tokens and times, but neither ids nor counts.
struct SettingLines {
  SettingRecords records;
  metrics::LineStatistics statistics;  // empty: the task is not scored
};
using Lines = std::map<std::pair<std::string, std::string>, SettingLines>;  // by task and run

// Results with the lines they were computed from.
struct Evaluation {
  std::filesystem::path file;  // the results.json
  Results results;
  Lines lines;  // empty: there is no lines.jsonl
};
// Returns the results in a file, with the lines.jsonl beside it. Errors: UserError, as load_results(), and
// with the line of a lines.jsonl that no evaluation writes.
Evaluation load_evaluation(const std::filesystem::path& file);

// Changes that fail a comparison, unless they may be noise: the interval of a ratio must lie below 1, the p-value of a
// difference below 0.05, where they are known. With a limit, missing tasks and settings fail too.
struct Limits {
  std::optional<double> slower;       // share of the speed, 0..1: a larger loss fails
  std::optional<double> worse;        // points of the leading score
  bool by_tokens_per_second = false;  // false: by speedup
};

struct Comparison {
  std::string text;                   // tables of at most 100 columns, with notes
  std::vector<std::string> failures;  // a line for each change that exceeds the limits
};

// Returns what changed from `first` to `second`. Settings are the same if task and name are. Speedups are over each
// evaluation's own baseline, so that the machine's drift cancels; in tokens a second it does not.
Comparison compare(const Evaluation& first, const Evaluation& second, const Limits& limits,
                   const metrics::ResamplingOptions& resampling);

}  // namespace draftsmith::evaluate
