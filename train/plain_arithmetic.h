// A scope without gradients and autocast: for models that are not trained (a teacher, a frozen primary), whose packed
// weights autocast cannot convert, and for gradients that are computed by hand.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

namespace draftsmith::train {

class PlainArithmetic {
 public:
  explicit PlainArithmetic(at::DeviceType device)
      : device_(device), enabled_(at::autocast::is_autocast_enabled(device)) {
    at::autocast::set_autocast_enabled(device_, false);
  }
  ~PlainArithmetic() { at::autocast::set_autocast_enabled(device_, enabled_); }
  PlainArithmetic(const PlainArithmetic&) = delete;
  PlainArithmetic& operator=(const PlainArithmetic&) = delete;

 private:
  at::DeviceType device_;
  bool enabled_;
  at::NoGradGuard no_grad_;
};

}  // namespace draftsmith::train
