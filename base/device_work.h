// Recorded device work and its recorders, one for each type of device (base/device_graph.h).
#pragma once

#include <functional>
#include <memory>

#include <c10/core/Device.h>

#include "base/device_kernels.h"

namespace draftsmith {

// Recorded device work. It reads and writes the tensors that it was recorded with, wherever their contents come from.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  // Does the work again, on the current stream, without waiting for it.
  void replay() {
    count_replay();
    replay_now();
  }
  // Returns how many launches of kernels and copies one replay stands for.
  virtual int64_t nodes() const = 0;

 private:
  virtual void replay_now() = 0;
};

// Device memory that recorded works share for what they compute on the way. Works that share it must be replayed one
// after the other, and a replay may overwrite what another one computed unless a tensor of it is still alive. Empty at
// first: a recorder fills it.
using WorkMemory = std::shared_ptr<void>;

// Records the device work of a function, which may neither wait for the device nor copy from or to the host. Throws
// std::exception if it does. Results have no values before the first replay, and recording changes no tensor.
using GraphRecorder =
    std::function<std::unique_ptr<RecordedWork>(c10::Device, WorkMemory& memory, const std::function<void()>& work)>;

}  // namespace draftsmith
