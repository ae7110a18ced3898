// Files of a finished evaluation (evaluate/evaluation.h lists them).
#pragma once

#include <filesystem>
#include <vector>

#include "evaluate/results/measured_task.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Writes results, report, hypotheses and lines of an evaluation to its directory. results.json comes last.
void write_evaluation(const Results& results, const std::vector<MeasuredTask>& tasks,
                      const std::filesystem::path& out_dir);

}  // namespace draftsmith::evaluate
