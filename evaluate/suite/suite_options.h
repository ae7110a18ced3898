// Options of a suite: tasks, models, and methods with parameter grids. `draftsmith eval` reads them from a TOML file,
// and a recipe's evaluate stage fills them in.
//
//   [[run]]
//   method = "bild"
//   drafter = ["aligned"]
//   fallback = [0.5, 0.7]                 # lists span a grid
//   choose_on = "val"                     # the grid runs on this task only; other tasks run what is chosen there:
//   max_drop = [0, 1]                     # for each value the fastest setting that loses at most so many points
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "base/options_grid.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/decode_options.h"
#include "infer/drafters/registry.h"
#include "infer/forced/match_rates.h"
#include "metrics/metric.h"

namespace draftsmith::evaluate {

// Name of the suite's own model; a setting's other models are named like the suite's drafters.
inline constexpr const char* kTargetName = "target";

// Label of greedy decoding of the target: every suite's first setting.
inline constexpr const char* kGreedyLabel = "greedy";

// An [[engagement]] table: options of engagement curves (infer/engagement.h).
struct EngagementTable {
  std::string name;
  std::string task;
  std::string drafter;
  std::vector<double> oracle{0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1};
  std::vector<double> fallback{0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};
  int64_t lines = 0;
  static Fields<EngagementTable> fields();
};

// A [[match_rates]] table: options of match rates (infer/forced/match_rates.h).
struct MatchRateTable : infer::MatchRateOptions {
  std::string name;
  std::string task;
  std::string model = kTargetName;
  std::filesystem::path exits;
  std::vector<std::string> decoding{"greedy", "top-k", "top-p"};
  int64_t prompts = 200;
  static Fields<MatchRateTable> fields();

  // Returns the options of the count, without the seed and lengths that the suite sets.
  infer::MatchRateOptions options() const;
};

using infer::DecodeOptions;

// Data set: where sources and references come from, and how hypotheses are scored.
struct TaskOptions {
  std::string name;
  std::string dataset;                  // data/datasets/datasets.h fills in what follows from it
  std::string direction;                // of a data set of parallel text
  std::vector<std::string> categories;  // of jsonl objects; empty: all lines
  std::filesystem::path source;         // text, one a line or between separators; or
  std::string separator;
  std::filesystem::path jsonl;                    // objects with the fields below
  std::vector<std::filesystem::path> references;  // text files parallel to source
  std::string source_field = "source";
  std::string messages;  // field with a conversation, in place of source_field
  bool chat = false;     // sources are a user's messages in the target's chat template
  std::vector<std::string> reference_fields{"target"};
  std::string prefix;
  std::string suffix;
  bool ids = false;
  int64_t skip = 0;
  int64_t limit = 0;
  int64_t timed = 0;
  int64_t max_source_tokens = 0;
  int64_t max_new_tokens = 0;
  metrics::MetricOptions metric;
  static Fields<TaskOptions> fields();
};

// Grid of settings, a [[run]] of a suite. It takes every option of decoding that is marked as a key of grids
// (infer/decode_options.h). Each combination of the lists' values is one setting.
struct SettingGrid {
  std::string name;
  std::string model = kTargetName;
  std::vector<std::string> drafter;
  DecodeOptions decode;              // values of the keys without lists, and defaults
  OptionLists<DecodeOptions> lists;  // values of the keys with lists; an empty list leaves the default
  std::string choose_on;
  std::vector<double> max_drop{0, 1};
  static Fields<SettingGrid> fields();
};

// Suite: models, tasks, runs, and how they are measured.
struct SuiteOptions : data::Languages {
  std::string name = "evaluation";
  std::filesystem::path model;
  std::vector<infer::DrafterOptions> drafter;
  std::vector<TaskOptions> task;
  std::vector<SettingGrid> run;
  std::vector<MatchRateTable> match_rates;
  std::vector<EngagementTable> engagement;
  int64_t repetitions = 3;
  std::optional<double> precision;
  std::optional<double> max_minutes;
  std::optional<double> spread_minutes;
  int64_t warmup = 3;
  int64_t max_new_tokens = 128;
  int64_t batch_size = 1;
  uint64_t seed = 1;
  int64_t resamples = 1000;
  int64_t forced_lines = 100;
  bool calibrate = true;
  std::string dtype = "fp32";
  std::string device = "auto";
  int64_t threads = 0;
  static Fields<SuiteOptions> fields();
};

// ---- Checks beyond the ranges of fields (suite_checks.cpp)
// They need no model, so that a recipe does not find mistakes after hours of training.

// Adds the problems of the task at `where`: sources, references and metric must belong together.
void check_task(const TaskOptions& task, const std::string& where, Problems& problems);
// Adds the problems of the suite at `where`: names that runs use must be declared, and runs must make sense.
void check_suite(const SuiteOptions& options, const std::string& where, Problems& problems);

}  // namespace draftsmith::evaluate
