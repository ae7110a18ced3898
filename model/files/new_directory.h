// New directories of models and other results: they get their names only when everything in them is written.
#pragma once

#include <filesystem>
#include <functional>

namespace draftsmith::model {

// Returns the directory's path without a trailing slash if nothing but perhaps an empty directory lies there. Long runs
// call it before they start. Errors: UserError.
std::filesystem::path require_free_place(const std::filesystem::path& directory);

// Lets `fill` write into an empty directory with a temporary name, then renames it to `directory`. If `fill` throws,
// nothing is left. Missing parents are created. Errors: those of require_free_place(); RunError.
void write_new_directory(const std::filesystem::path& directory,
                         const std::function<void(const std::filesystem::path& temporary)>& fill);

}  // namespace draftsmith::model
