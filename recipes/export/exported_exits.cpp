#include "recipes/export/exported_exits.h"

#include "model/files/model_hash.h"

namespace draftsmith::recipes {

namespace fs = std::filesystem;

std::unique_ptr<model::Exits> exits_of(const fs::path& directory, const model::TransformerModel& model) {
  const fs::path exits = model::exits_directory(directory);
  return model::holds_exits(exits) ? model::load_exits(exits, directory, model) : nullptr;
}

void write_exits(const fs::path& directory, model::Exits& exits, const fs::path& name, at::ScalarType dtype) {
  exits.to(at::kCPU, dtype);
  exits.bind(name.string(), model::model_hash(directory));
  model::save_exits(model::exits_directory(directory), exits);
}

}  // namespace draftsmith::recipes
