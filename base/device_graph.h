// Device work that is recorded once and replayed at the cost of one launch. On NVIDIA GPUs these are CUDA graphs; tests
// add a recorder for their stand-in accelerator. CPUs have none.
#pragma once

#include <functional>
#include <memory>

#include "base/device_work.h"

namespace draftsmith {

// Sets the recorder of a type of device.
void set_graph_recorder(c10::DeviceType type, GraphRecorder recorder);

// Returns whether work on this device is recorded: it has a recorder, and DRAFTSMITH_GRAPHS is not off. (CUDA: this
// build had the headers, see cmake/libtorch.cmake.)
bool records_graphs(c10::Device device);

// Records work with the device's recorder. If that fails, warns once, turns recording off for the process and returns
// null.
std::unique_ptr<RecordedWork> record_graph(c10::Device device, const std::function<void()>& work);

}  // namespace draftsmith
