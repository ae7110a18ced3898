// The identity of a model as one hash. Files bound to a model (a teacher's cache, a Tandem secondary) name it by this
// hash and find it wherever it was moved.
#pragma once

#include <filesystem>
#include <string>

namespace draftsmith::model {

// Returns the SHA-256 over config.json and the weight files, their names included, as 64 hex digits. Generation
// settings, the tokenizer, additions of ours and the path of a companion (model/kinds/companion.h) do not change it.
// Reads all weights, but each file only once in a process while its size and modification time stay the same. Errors:
// UserError as load_config and WeightFiles.
std::string model_hash(const std::filesystem::path& directory);

}  // namespace draftsmith::model
