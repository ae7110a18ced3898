// Timing of all settings of a task, by one process while all others of its job wait. Finished turns are kept on disk,
// and an interrupted evaluation continues after the last one.
#pragma once

#include <map>
#include <string>

#include "evaluate/measure/counts.h"

namespace draftsmith::evaluate {

// Times all settings on the timed lines and adds the times to the records of the counting pass. Settings take turns of
// a few batches, and each round of turns begins with another setting, so that drifts of the machine affect all alike. A
// turn begins with a few untimed tokens, which hide what ran before. Returns the messages of settings that failed, by
// label; `records` lacks them, and the others go on. Errors: Interrupted, and those of the greedy baseline.
std::map<std::string, std::string> time_task(const MeasureTask& task, const SuiteOptions& options, Engine& engine,
                                             MeasurementStore& store, const SuiteContext& context,
                                             TaskRecords& records);

}  // namespace draftsmith::evaluate
