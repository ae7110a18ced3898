// Choice and decoding of the outputs that reports show by their tokens' origins.
#pragma once

#include <vector>

#include "evaluate/results/example.h"
#include "evaluate/results/measured_task.h"

namespace draftsmith::evaluate {

// Returns three lines of usual length, decoded again by the fastest setting of each method whose drafts the target
// verifies, at most six. Empty without such settings.
std::vector<Example> example_outputs(const MeasuredTask& measured, Engine& engine);

}  // namespace draftsmith::evaluate
