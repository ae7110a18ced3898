// Reader of evaluation suites, for `draftsmith eval` and `draftsmith validate`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "evaluate/suite/suite_options.h"

namespace draftsmith::cli {

// Reads a suite and applies `--set` overlays; a path may begin with the name of a task, run or drafter. A suite without
// a name takes the file's. Errors: a UserError with all problems: missing files and model directories, references that
// lack lines.
evaluate::SuiteOptions load_suite(const std::filesystem::path& file, const std::vector<std::string>& overrides);

}  // namespace draftsmith::cli
