// `inspect` describes models, corpora, results and stage directories; `verify` checks that they are as written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"

namespace draftsmith::recipes {

// Returns a description of several lines, at most 100 columns wide. `path` is a stage directory, a model directory, a
// directory of exits, a corpus, a recipe's work directory or a results.json. Errors: UserError for other paths, for
// damaged files, and for a stage that is not as it was written.
std::string inspect(const std::filesystem::path& path);

// Returns all problems of a path: files that differ from the DONE of their stage; a damaged model, corpus or
// results.json; in a work directory, a stage in use that has not finished. Errors: UserError as for inspect().
std::vector<Problem> verify(const std::filesystem::path& path);

// Returns a problem for each file at or below `path` that differs from its stage's DONE.
std::vector<Problem> changed_files(const std::filesystem::path& path);

// Returns whether a DONE describes the path. For other paths, verify() checks only that files are well formed.
bool is_recorded(const std::filesystem::path& path);

}  // namespace draftsmith::recipes
