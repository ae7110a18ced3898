// The device that tests/device runs its suites on.
#pragma once

#include <c10/core/Device.h>

namespace draftsmith::on_device {

// Returns the device that DRAFTSMITH_TEST_DEVICE names: standin (the default: tests/standin/standin.h), cpu, or a
// device of --device, as cuda. Throws UserError for other words, and for a GPU that is not there.
c10::Device test_device();

// Returns whether that is the stand-in accelerator, which counts what the host asks of it.
bool on_standin();

// Lets work on the device be recorded as graphs, as it is at first, or not.
void record_graphs(bool on);

}  // namespace draftsmith::on_device
