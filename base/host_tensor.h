// Small tensors on the CPU without LibTorch's dispatcher. One of its operators takes some 1 us, and several where a
// target's weights have just gone through the caches: as long as a layer of a small drafter.
#pragma once

#include "base/aten.h"

namespace draftsmith {

// Returns a new contiguous tensor on the CPU whose numbers are undefined.
at::Tensor host_empty(at::IntArrayRef sizes, at::ScalarType type);

// Returns tensor.view(sizes). On the CPU it records no gradients.
at::Tensor viewed(const at::Tensor& tensor, at::IntArrayRef sizes);

}  // namespace draftsmith
