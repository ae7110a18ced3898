// Directories of models and of what belongs to them: they appear under their names only when all in them is written.
#pragma once

#include <filesystem>
#include <functional>

namespace draftsmith::model {

// The directory's path without a slash at its end, when nothing lies there yet but perhaps an empty directory. For runs
// that work long before they save. Errors: UserError.
std::filesystem::path require_free_place(const std::filesystem::path& directory);

// Lets `fill` write into an empty directory with a temporary name, then gives it the name of `directory`; where `fill`
// throws, nothing is left. Missing parents are created. Errors: those of require_free_place(); RunError.
void write_new_directory(const std::filesystem::path& directory,
                         const std::function<void(const std::filesystem::path& temporary)>& fill);

}  // namespace draftsmith::model
