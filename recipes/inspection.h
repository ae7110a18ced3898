// What a model, corpus, results or stage directory holds, and whether it is still what was written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"

namespace draftsmith::recipes {

// A description for people, several lines, at most 100 columns. `path` is a stage directory, a model directory, a
// directory of exits, a corpus, a recipe's work directory or a results.json. Errors: UserError when it is none of
// these, is damaged, or is or lies in a stage directory or is an export and differs from what was written there.
std::string inspect(const std::filesystem::path& path);

// Everything that is wrong with it: files that differ from the DONE of the stage that it is or lies in, or from the
// record of an export; a damaged model, corpus or results.json; an exported model that gives other logits for its
// stored probes; in a work directory a stage in use that has not finished. Errors: UserError as above.
std::vector<Problem> verify(const std::filesystem::path& path);

// Whether a DONE or the record of an export says what was written there. Of anything else verify() can check the form
// only.
bool is_recorded(const std::filesystem::path& path);

}  // namespace draftsmith::recipes
