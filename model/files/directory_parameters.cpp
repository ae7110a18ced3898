#include "model/files/directory_parameters.h"

#include "model/cpu/packed_weights.h"

namespace draftsmith::model {

at::ScalarType parameter_dtype(const TransformerConfig& config, const std::string& parameter, at::ScalarType dtype) {
  return dtype == at::kHalf && keeps_fp32_in_half(config, parameter) ? at::kFloat : dtype;
}

DirectoryParameters::DirectoryParameters(const ModelDirectory& directory, at::Device device, at::ScalarType dtype,
                                         bool for_decoding)
    : directory_(directory),
      device_(device),
      dtype_(dtype),
      numbers_(for_decoding ? number_type(dtype, device) : dtype) {
  for (const ModelDirectory::Stored& stored : directory.parameters()) {
    parameters_[stored.parameter.name] = &stored;
  }
  directory.weights().will_need();
}

at::Tensor DirectoryParameters::stored(const std::string& name) {
  const auto found = parameters_.find(name);
  if (found == parameters_.end()) return {};
  const StoredTensor& where = found->second->tensor;
  if (where.name != last_name_) {
    last_ = directory_.weights().stored(where.name);
    last_name_ = where.name;
  }
  return take_parameter(last_, where, directory_.config().heads);
}

at::Tensor DirectoryParameters::find(const std::string& name) {
  const at::Tensor value = stored(name);
  if (!value.defined()) return {};
  return value.to(device_, parameter_dtype(directory_.config(), name, numbers_)).contiguous();
}

at::Tensor DirectoryParameters::copy(const std::string& name) {
  return stored(name).to(at::TensorOptions(device_).dtype(parameter_dtype(directory_.config(), name, numbers_)),
                         /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
}

at::Tensor DirectoryParameters::unconverted(const std::string& name) {
  if (!device_.is_cpu() || numbers_ != at::kFloat) return find(name);
  const at::Tensor value = stored(name);
  return value.defined() ? value.contiguous() : value;
}

void DirectoryParameters::built() {
  last_ = at::Tensor();
  last_name_.clear();
  directory_.weights().forget_pages();
}

}  // namespace draftsmith::model
