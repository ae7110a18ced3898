// Times of single steps, of which predictions of the speedup are made (evaluate/theory).
#pragma once

#include "evaluate/results/measured_task.h"

namespace draftsmith::evaluate {

// Measures the steps of the task's drafters, unless SuiteOptions::calibrate is off. Adds to task.costs and
// task.drafted_for. Where greedy decoding gives only empty outputs, there is nothing to measure. A setting whose steps
// fail has an entry in task.failures instead. Errors: Interrupted.
void calibrate(const SuiteOptions& options, Engine& engine, MeasuredTask& task);

}  // namespace draftsmith::evaluate
