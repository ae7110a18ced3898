// Check that all processes of a job see one directory, as they do on one machine or on a shared file system.
#pragma once

#include <filesystem>

#include "distributed/world.h"

namespace draftsmith {

// Checks it for a directory that the leader has made. `flag` names the option that sets it in errors. Errors: UserError
// on all processes.
void require_shared_directory(World& world, const std::filesystem::path& directory, const std::string& flag);

}  // namespace draftsmith
