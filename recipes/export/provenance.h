// Where a model comes from: the stage that made it, as its DONE says, and the stages and data files behind that one.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "recipes/done_file.h"

namespace draftsmith::recipes {

struct Provenance {
  Done made_by;              // the stage that the model lies in
  std::vector<Done> behind;  // what it was made from, those nearest first; only what still lies beside it
  std::map<std::string, std::string> data;  // files that all of these read -> SHA-256
};

// Nothing for a model that lies in no stage directory. Errors: UserError when a DONE is damaged.
std::optional<Provenance> find_provenance(const std::filesystem::path& model);

}  // namespace draftsmith::recipes
