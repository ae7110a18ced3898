#include "base/device_tensors.h"

#include <ATen/EmptyTensor.h>

namespace draftsmith {

at::Tensor host_empty(at::IntArrayRef sizes, at::ScalarType type) {
  return at::Tensor(at::detail::empty_cpu(sizes, type));
}

at::Tensor viewed(const at::Tensor& tensor, at::IntArrayRef sizes) {
  if (!tensor.is_cpu() || !tensor.is_contiguous() || c10::multiply_integers(sizes) != tensor.numel()) {
    return tensor.view(sizes);
  }
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()),
                                                             tensor.key_set(), tensor.dtype());
  view.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
  view.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return view;
}

at::Tensor upload(const at::Tensor& host, c10::Device device) {
  if (device.is_cpu()) return host;
  at::Tensor pinned = at::empty(host.sizes(), host.options().pinned_memory(true));
  pinned.copy_(host);
  return pinned.to(device, /*non_blocking=*/true);
}

}  // namespace draftsmith
