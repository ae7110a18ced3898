// A scope in which matrix products are in a half type over fp32 weights, or are not.
#pragma once

#include <ATen/autocast_mode.h>

namespace draftsmith {

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

}  // namespace draftsmith
