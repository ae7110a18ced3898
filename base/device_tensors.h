// Small tensors on the host, copies to a device that the host does not wait for, and the type of products.
//
// Tensors on the CPU are made and viewed here without LibTorch's dispatcher. One of its operators takes some 1 us, and
// several where a target's weights have just gone through the caches: as long as a layer of a small drafter.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "base/aten.h"

namespace draftsmith {

// Returns a new contiguous tensor on the CPU whose numbers are undefined.
at::Tensor host_empty(at::IntArrayRef sizes, at::ScalarType type);

// Returns tensor.view(sizes). On the CPU it records no gradients.
at::Tensor viewed(const at::Tensor& tensor, at::IntArrayRef sizes);

// Returns a copy of a host tensor on the device; the tensor itself if the device is the CPU. The copy goes through
// pinned memory: from other memory, large copies would wait until the device has done all earlier work.
at::Tensor upload(const at::Tensor& host, c10::Device device);

// Returns where a tensor's numbers are, as kernels take them; null of an undefined one.
inline const void* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

// Turns autocast on or off for a device while it exists.
class AutocastScope {
 public:
  AutocastScope(c10::DeviceType device, bool on, at::ScalarType type = at::kBFloat16)
      : device_(device), before_(at::autocast::is_autocast_enabled(device)) {
    if (on) at::autocast::set_autocast_dtype(device_, type);
    at::autocast::set_autocast_enabled(device_, on);
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    // Drops the converted weights, which autocast caches: the next step's weights are different.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, before_);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  c10::DeviceType device_;
  bool before_;
};

// A scope without gradients: for models that are not trained (a teacher, a frozen primary), and for gradients that are
// computed by hand. On CPUs autocast, which cannot convert packed weights, stays on for models that are not `packed`.
class PlainArithmetic {
 public:
  explicit PlainArithmetic(c10::DeviceType device, bool packed = true)
      : autocast_(device, !packed && device == at::kCPU && at::autocast::is_autocast_enabled(device)) {}

 private:
  AutocastScope autocast_;
  at::NoGradGuard no_grad_;
};

}  // namespace draftsmith
