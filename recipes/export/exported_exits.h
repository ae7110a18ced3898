// Exits of a model (model/kinds/exits.h) in an export.
#pragma once

#include <filesystem>
#include <memory>

#include "model/kinds/exits.h"

namespace draftsmith::recipes {

// Loads the exits in the directory of `model`; nullptr if there are none. Errors: as load_exits.
std::unique_ptr<model::Exits> exits_of(const std::filesystem::path& directory, const model::TransformerModel& model);

// Writes exits into the exported directory of their model and binds them to it as `name`, since the hash of the model
// depends on its type. Errors: as save_exits.
void write_exits(const std::filesystem::path& directory, model::Exits& exits, const std::filesystem::path& name,
                 at::ScalarType dtype);

}  // namespace draftsmith::recipes
