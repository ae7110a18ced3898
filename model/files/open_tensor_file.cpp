#include "model/files/open_tensor_file.h"

#include "model/files/pickled_weights.h"
#include "model/files/safetensors.h"

namespace draftsmith::model {

std::unique_ptr<TensorFile> open_tensor_file(const std::filesystem::path& file) {
  if (file.extension() == ".safetensors") return std::make_unique<SafetensorsFile>(file);
  return std::make_unique<PickledWeights>(file);
}

}  // namespace draftsmith::model
