// The file lines.jsonl: tokens, times and scores of each line under each setting, from which anyone can recompute the
// speedups, and compare two evaluations line by line.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "evaluate/results/measured_task.h"

namespace draftsmith::evaluate {

// Returns a JSON object a line for each line and setting of the task: `task`, `run` (the setting's own name, also where
// a choice gave it another), `line` (from 0), `turn`, `tokens`, and the lists `seconds` and `decode_seconds` with one
// number a repetition, empty where the line was not timed. Scored tasks have `statistics`, whose sums the metric scores
// (metrics::LineStatistics).
//
// speedup = (Σ tokens / Σ median seconds) of the run over the same of its baseline, over the timed lines;
// speedup_decode takes the decode_seconds of the median repetitions (evaluate/measure/speed.h).
std::string lines_jsonl(const MeasuredTask& task);

// Lines of a setting on a task as lines.jsonl has them. Records have tokens and times, but neither ids nor counts.
struct SettingLines {
  SettingRecords records;
  metrics::LineStatistics statistics;  // empty: the task is not scored
};

// Lines by task and run.
using Lines = std::map<std::pair<std::string, std::string>, SettingLines>;

// Returns the content of a lines.jsonl; nothing if there is no such file. Errors: UserError with the line of a value
// that no evaluation writes.
Lines load_lines(const std::filesystem::path& file);

}  // namespace draftsmith::evaluate
