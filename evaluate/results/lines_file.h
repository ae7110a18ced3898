// The file lines.jsonl: tokens and times of each line under each setting, from which anyone can recompute the speedups.
#pragma once

#include <string>

#include "evaluate/results/measured_task.h"

namespace draftsmith::evaluate {

// Returns a JSON object a line for each line and setting of the task: `task`, `run` (the setting's own name, also where
// a choice gave it another), `line` (from 0), `turn`, `tokens`, and the lists `seconds` and `decode_seconds` with one
// number a repetition, empty where the line was not timed.
//
// speedup = (Σ tokens / Σ median seconds) of the run over the same of its baseline, over the timed lines;
// speedup_decode takes the decode_seconds of the median repetitions (evaluate/measure/speed.h).
std::string lines_jsonl(const MeasuredTask& task);

}  // namespace draftsmith::evaluate
