// Files that several commands read: suites and results of evaluations.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace draftsmith::evaluate {
struct SuiteOptions;  // evaluate/suite/suite_options.h
}

namespace draftsmith::cli {

// Reads a suite and applies `--set` overlays; a path may begin with the name of a task, run or drafter. A suite without
// a name takes the file's. Errors: a UserError with all problems: missing files and model directories, references that
// lack lines.
evaluate::SuiteOptions load_suite(const std::filesystem::path& file, const std::vector<std::string>& overrides);

// Returns the file of results that the user named, or named the directory of: of an evaluation, a stage or a recipe's
// work. Errors: UserError if there is none, or several.
std::filesystem::path find_results(const std::filesystem::path& path);

}  // namespace draftsmith::cli
