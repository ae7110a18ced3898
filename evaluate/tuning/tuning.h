// Tuning of a suite (`draftsmith tune`): of each run's grid the setting that decodes fastest on validation data within
// a quality budget, found by successive halving or on the full grid. Theory decides what the first rung does not
// measure (tuning/halving.h), and measurements decide everything else.
//
// Each rung is an evaluation with a directory of its own, rung1, rung2, ... in the work directory. A finished rung is
// not measured again, and an interrupted one continues.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "evaluate/engine/engine.h"
#include "evaluate/measure/context.h"
#include "evaluate/suite/setting_grid.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {

enum class Objective {
  kTokensPerSecond,
  kSentenceP95,  // 95th percentile of the seconds a line
};

struct TuningOptions {
  std::string task;       // validation data; empty: the task that the runs choose on
  double max_drop = 0.5;  // points lost against each setting's own baseline
  Objective objective = Objective::kTokensPerSecond;
  int64_t share = 3;          // of settings, one in so many goes on to the next rung, which has so many times the lines
  int64_t fewest_lines = 16;  // of the first rung
  bool full = false;          // all settings on all lines
  bool theory = true;         // settings that theory rules out by a wide margin are not in the first rung
};

// Settings of a run among which one is chosen: those with the same baseline, so the same sampling.
struct TuningGroup {
  size_t run = 0;  // index in the suite
  std::vector<Setting> settings;
  std::vector<Setting> waiting = {};  // settings that theory ruled out, unless measurements bring them back
};

struct Rung {
  int64_t lines = 0;
  int64_t settings = 0;
  std::string best;  // label of the greatest gain within the budget, among all runs
  double tokens_per_second = 0;
  double drop = 0;
  bool measured_before = false;
};

// Chosen setting of a group, as the last rung measured it.
struct TunedSetting {
  size_t run = 0;
  Setting setting;
  double tokens_per_second = 0;
  double speedup = 0;
  double p95 = 0;  // seconds a line
  double drop = 0;
  bool allowed = true;  // false: all settings lost more than the budget, this one least
  int64_t of = 0;       // settings of the group
};

struct TuningResult {
  std::string task;
  std::vector<Rung> rungs;
  std::vector<TunedSetting> chosen;
  std::vector<std::string> ruled_out;  // labels that theory kept from being measured
  std::vector<std::string> notes;      // settings that failed
};

// Returns the groups of the suite's runs. Those with a single setting have nothing to tune.
std::vector<TuningGroup> tuning_groups(const SuiteOptions& suite);

// Returns the name of the validation task. Errors: UserError if it is unknown or not given, if there is no other task
// to report on, if both share lines, if no run has a grid, and for lossy runs without a metric.
std::string tuning_task(const SuiteOptions& suite, const TuningOptions& options);

// Tunes the suite, whose models `engine` has. Errors: as run_evaluation(), and RunError if all settings of a run
// failed.
TuningResult tune(const SuiteOptions& suite, const TuningOptions& options, const std::filesystem::path& work,
                  Engine& engine, const SuiteContext& context = {});

// Returns tables of the rungs and of the chosen settings, at most 100 columns wide.
std::string tuning_table(const TuningResult& result, const TuningOptions& options);

}  // namespace draftsmith::evaluate
