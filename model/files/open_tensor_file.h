// Opens a weight file with the reader of its format.
#pragma once

#include <filesystem>
#include <memory>

#include "model/files/tensor_file.h"

namespace draftsmith::model {

// Opens a file by the end of its name: ".safetensors", otherwise a pickled state dict. Errors: those of the readers.
std::unique_ptr<TensorFile> open_tensor_file(const std::filesystem::path& file);

}  // namespace draftsmith::model
