// What a suite asks for: tasks, models, and methods with parameter grids. Read from a TOML suite by `draftsmith eval`,
// or filled in by a recipe's evaluate stage.
//
//   model = "target/model"                # a model directory
//   [[drafter]]
//   name = "aligned"
//   model = "aligned/model"               # or tandem = "tandem/model", ngram = "ngram.h5", lookup = true, or exit = 2
//   [[task]]
//   name = "val"
//   source = "val.de"                     # one text a line
//   references = ["val.en"]
//   [[run]]
//   method = "bild"
//   drafter = ["aligned"]
//   fallback = [0.5, 0.7]                 # lists span a grid
//   rollback = [1, 3]
//   choose_on = "val"                     # the grid runs on this task only; the others run the settings chosen there:
//   max_drop = [0, 1]                     # the fastest setting that loses at most so many points, one for each value
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/options_grid.h"
#include "evaluate/suite/match_rate_options.h"
#include "infer/decode_options.h"
#include "infer/drafters/registry.h"
#include "metrics/registry.h"

namespace draftsmith::evaluate {

using infer::DecodeOptions;

// Where sources and references come from, and how hypotheses are scored.
struct TaskOptions {
  std::string name;
  std::filesystem::path source;  // text, one a line or between separators; or
  std::string separator;
  std::filesystem::path jsonl;                    // objects with the fields below
  std::vector<std::filesystem::path> references;  // text files parallel to source
  std::string source_field = "source";
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

// A [[run]] of a suite: a grid of settings. Any option of decoding may be given that is a key of grids
// (infer/decode_options.h); lists span the grid, one setting for each combination.
struct SettingGrid {
  std::string name;
  std::string model = "target";
  std::vector<std::string> drafter;
  DecodeOptions decode;              // the keys with one value, and defaults
  OptionLists<DecodeOptions> lists;  // the keys with lists; an empty one leaves the default
  std::string choose_on;
  std::vector<double> max_drop{0, 1};
  static Fields<SettingGrid> fields();
};

struct SuiteOptions {
  std::string name = "evaluation";
  std::filesystem::path model;
  std::vector<infer::DrafterOptions> drafter;
  std::vector<TaskOptions> task;
  std::vector<SettingGrid> run;
  std::vector<MatchRateTable> match_rates;
  int64_t repetitions = 3;
  int64_t warmup = 3;
  int64_t max_new_tokens = 128;
  int64_t batch_size = 1;
  uint64_t seed = 1;
  int64_t resamples = 1000;
  int64_t forced_lines = 100;
  int64_t forced_block = 0;
  bool calibrate = true;
  bool tune_router = false;
  std::string dtype = "fp32";
  std::string device = "auto";
  int64_t threads = 0;
  static Fields<SuiteOptions> fields();
};

}  // namespace draftsmith::evaluate
