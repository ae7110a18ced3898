// An evaluation suite's file, as `draftsmith eval` and `draftsmith validate` both read it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "evaluate/suite/suite_options.h"

namespace draftsmith::cli {

// Reads a suite and `--set` overlays; tasks, runs and drafters may be overlaid by their names. A suite without a name
// gets the file's. Errors: UserError with everything that is wrong, files and model directories that are missing too.
evaluate::SuiteOptions load_suite(const std::filesystem::path& file, const std::vector<std::string>& overrides);

}  // namespace draftsmith::cli
