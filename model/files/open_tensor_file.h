// Opens a weight file with the reader of its format.
#pragma once

#include <filesystem>
#include <memory>

#include "model/files/open_tensor_file.h"
#include "model/files/tensor_file.h"

namespace draftsmith::model {

// By what the file's name ends with: ".safetensors", else a pickled state dict. Errors: those of the readers.
std::unique_ptr<TensorFile> open_tensor_file(const std::filesystem::path& file);

}  // namespace draftsmith::model
