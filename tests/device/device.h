// The device that tests/device runs its suites on.
#pragma once

#include <cstdlib>
#include <string>

#include "base/device.h"
#include "tests/standin/standin.h"

namespace draftsmith::on_device {

// Returns the word of DRAFTSMITH_TEST_DEVICE: standin (the default: tests/standin/standin.h), cpu, or a device of
// --device, as cuda.
inline std::string device_name() {
  const char* name = std::getenv("DRAFTSMITH_TEST_DEVICE");
  return name == nullptr || *name == '\0' ? "standin" : name;
}

// Returns whether that is the stand-in accelerator, which counts what the host asks of it.
inline bool on_standin() {
  return device_name() == "standin";
}

// Returns the device. Throws UserError for other words, and for a GPU that is not there.
inline c10::Device test_device() {
  return on_standin() ? standin::device() : choose_device(device_name(), "DRAFTSMITH_TEST_DEVICE");
}

}  // namespace draftsmith::on_device
