#include "model/tensor_file.h"

#include "model/pickled_weights.h"
#include "model/safetensors.h"

namespace draftsmith::model {

at::Tensor TensorFile::read(const std::string& name, at::ScalarType dtype) const {
  return stored(name).to(dtype, /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
}

std::unique_ptr<TensorFile> open_tensor_file(const std::filesystem::path& file) {
  if (file.extension() == ".safetensors") return std::make_unique<SafetensorsFile>(file);
  return std::make_unique<PickledWeights>(file);
}

}  // namespace draftsmith::model
