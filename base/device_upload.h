// Copies from the host to a device that the host does not wait for.
#pragma once

#include <ATen/core/Tensor.h>

namespace draftsmith {

// Returns a copy of a host tensor on the device; the tensor itself if the device is the CPU. The copy goes through
// pinned memory: from other memory, large copies would wait until the device has done all earlier work.
at::Tensor upload(const at::Tensor& host, c10::Device device);

}  // namespace draftsmith
