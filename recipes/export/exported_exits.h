// The exits of a model (model/kinds/exits.h) as an export takes them along.
#pragma once

#include <filesystem>
#include <memory>

#include "model/kinds/exits.h"

namespace draftsmith::recipes {

// The exits inside a directory, which `model` was loaded from; nullptr where there are none. Errors: load_exits.
std::unique_ptr<model::Exits> exits_of(const std::filesystem::path& directory, const model::TransformerModel& model);

// Writes exits into the model directory that was made of their model, and binds them to it as `name`: in another type
// the model has another hash. Errors: save_exits.
void write_exits(const std::filesystem::path& directory, model::Exits& exits, const std::filesystem::path& name,
                 at::ScalarType dtype);

}  // namespace draftsmith::recipes
