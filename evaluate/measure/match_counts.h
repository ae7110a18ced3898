// Match rates of a suite (infer/forced/match_rates.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "evaluate/engine/engine.h"
#include "evaluate/measure/measurement_store.h"
#include "evaluate/results/results.h"
#include "evaluate/suite/match_rate_options.h"

namespace draftsmith::evaluate {

// Table of match rates with the prompts that it counts on.
struct MatchPrompts {
  const MatchRateTable& rates;
  std::string task;
  std::string key;  // MeasuredTask::key
  std::span<const Prompt> prompts;
  int64_t max_new_tokens = 0;
};

// Returns the match rates of all tables. Errors: as measure_missing().
std::vector<MatchRateResult> measure_match_rates(const std::vector<MatchPrompts>& tables, Engine& engine,
                                                 MeasurementStore& store, const SuiteContext& context);

}  // namespace draftsmith::evaluate
