// The device of a bench: the program's devices, and the stand-in of tests for a GPU where a bench links it.
#pragma once

#include <cstdint>
#include <string>

#include "base/device.h"
#ifdef DRAFTSMITH_STANDIN
#include "tests/standin/standin.h"
#endif

namespace draftsmith::bench {

// Returns the device named as for choose_device(), or "standin". Sets the number of threads, and the precision of
// matrix products that the program has.
inline c10::Device prepare_device(const std::string& name, int64_t threads) {
  set_matmul_precision("highest");
  set_threads(threads);
#ifdef DRAFTSMITH_STANDIN
  if (name == "standin") return standin::device();
#endif
  return choose_device(name);
}

// Returns what records call the device.
inline std::string device_label(c10::Device device) {
  return device.is_cpu() || device.is_cuda() ? device_description(device) : "standin";
}

}  // namespace draftsmith::bench
