// Speedups beside beam search: columns of tables and CSV.
#pragma once

#include <vector>

#include "evaluate/report/section.h"

namespace draftsmith::evaluate {

// Returns the numbers of beams that settings of the task are compared with, in the order of the suite.
std::vector<int64_t> beams_of(const TaskResult& task);

// Returns the setting's speed beside the search with so many beams, or nullptr.
const BeamSpeedup* versus_beams(const SettingResult& setting, int64_t beams);

// Returns the CSV columns of the suite's first beam search.
std::vector<CsvColumn> versus_beam_columns();

}  // namespace draftsmith::evaluate
