// Origin of a model: the stage that made it, as its DONE says, and the earlier stages and data files.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "recipes/done_file.h"

namespace draftsmith::recipes {

struct Provenance {
  Done made_by;                             // stage of the model
  std::vector<Done> behind;                 // earlier stages that still exist, nearest first
  std::map<std::string, std::string> data;  // data files of all these stages -> SHA-256
};

// Returns the origin of a model; nothing if it does not lie in a stage directory. Errors: UserError if a DONE is
// damaged.
std::optional<Provenance> find_provenance(const std::filesystem::path& model);

}  // namespace draftsmith::recipes
