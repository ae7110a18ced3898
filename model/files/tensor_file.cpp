#include "model/files/tensor_file.h"

namespace draftsmith::model {

at::Tensor TensorFile::read(const std::string& name, at::ScalarType dtype) const {
  return stored(name).to(dtype, /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
}

}  // namespace draftsmith::model
