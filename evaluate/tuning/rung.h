// One rung of tuning: an evaluation of some settings on the first lines of the validation task.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "evaluate/engine/engine.h"
#include "evaluate/measure/context.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {

struct RungRequest {
  const SuiteOptions& suite;
  std::string task;
  int64_t lines = 0;  // of the task's own, from the first one
  std::vector<Setting> settings;
};

// Numbers of a setting on the lines of a rung.
struct RungSetting {
  double tokens_per_second = 0;
  double speedup = 0;
  double p95 = 0;         // seconds a line, the 95th percentile of the timed lines' medians
  double drop = 0;        // points lost against the setting's own baseline; 0 without a metric
  double least_drop = 0;  // lower end of its interval
};

struct RungResult {
  std::map<std::string, RungSetting> settings;  // by label; those that failed are missing
  std::vector<std::string> notes;               // on settings that failed
  bool measured_before = false;
};

// Returns a hash of everything that a rung's measurements depend on: suite, settings, data, models.
std::string rung_key(const RungRequest& request, const Engine& engine);

// Measures the settings, or reads what an earlier run of the same rung measured. The evaluation's files are in
// `directory`. Errors: as run_evaluation().
RungResult measure_rung(const RungRequest& request, const std::filesystem::path& directory, Engine& engine,
                        const SuiteContext& context);

}  // namespace draftsmith::evaluate
