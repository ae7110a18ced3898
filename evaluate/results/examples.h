// Choice and decoding of the outputs that reports show by their tokens' origins.
#pragma once

#include <vector>

#include "evaluate/results/example.h"
#include "evaluate/results/measured_task.h"

namespace draftsmith::evaluate {

// Returns three lines of usual length, decoded again by one setting of each method whose drafts the target verifies, at
// most six: the setting with the most tokens a target run, of equals the first. It is chosen by counts, so that the
// machine's load changes no example. Empty without such settings. A setting that fails is added to `failures`.
std::vector<Example> example_outputs(const MeasuredTask& measured, Engine& engine,
                                     std::vector<SettingFailure>& failures);

}  // namespace draftsmith::evaluate
