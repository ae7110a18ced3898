// Device work that is recorded once and replayed at the cost of one launch. On NVIDIA GPUs these are CUDA graphs; tests
// add a recorder for their stand-in accelerator. CPUs have none.
#pragma once

#include <functional>
#include <memory>

#include "base/device_kernels.h"

namespace draftsmith {

// Returns the recorder of NVIDIA GPUs; empty if this build had no CUDA headers.
GraphRecorder cuda_graph_recorder();

// Sets the recorder of a type of device.
void set_graph_recorder(c10::DeviceType type, GraphRecorder recorder);

// Returns whether work on this device is recorded: it has a recorder, and wants_recordings()
// (base/device_kernels.h). (CUDA: this build had the headers, see cmake/libtorch.cmake.)
bool records_graphs(c10::Device device);

// Records work with the device's recorder. If that fails, reports a fallback, turns recording off for the process and
// returns null.
std::unique_ptr<RecordedWork> record_graph(c10::Device device, WorkMemory& memory, const std::function<void()>& work);

// Work that is the same each time: done as it is the first time, which loads what it needs, then recorded, then
// replayed.
class RepeatedWork {
 public:
  // Does the work, without waiting for it. `work` must always be the same, on the same tensors.
  void run(c10::Device device, WorkMemory& memory, const std::function<void()>& work);
  // Forgets what was recorded. Needed when tensors are replaced that the work reads.
  void clear();

 private:
  bool done_before_ = false;
  std::unique_ptr<RecordedWork> recorded_;
};

}  // namespace draftsmith
