// Operators of the stand-in accelerator: each is computed on the CPU, in device memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "tests/standin/device_memory.h"

namespace draftsmith::standin {

// Returns a CPU tensor over the same device memory. It keeps the memory.
at::Tensor readable_alias(const at::Tensor& tensor);
// Returns one that does not: a recorded launch knows addresses alone, and reads what lies there when it is replayed.
// Undefined for an undefined tensor.
at::Tensor readable_view(const at::Tensor& tensor);

// Runs any operator: checks that its tensors are on the device, runs the CPU's kernel on aliases of them, and brings
// new results to the device. Errors: std::logic_error for host tensors other than numbers, as on a GPU.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// An operator's implementation, as LibTorch's boxed kernels: takes arguments from the stack, whose tensors are readable
// aliases, and puts results there.
using Implementation = std::function<void(const c10::OperatorHandle&, torch::jit::Stack*)>;
// Has one of our operators ("linear_rows") computed in another way than on the CPU; empty: as on the CPU again. Its
// launches count as own kernels' (base/device_kernels.h). What is recorded keeps the implementation of then.
// Errors: c10::Error if there is no such operator.
void replace_operator(const std::string& name, Implementation implementation);

// While this exists, launches are recorded, memory is the pool's, and waits and copies from or to the host are errors.
// Changes of tensors by launches are undone at the end, and new tensors have no contents: recording does nothing, as on
// a GPU.
class Recording {
 public:
  using Launches = std::vector<std::function<void()>>;
  explicit Recording(MemoryPool& pool);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording();
  // Returns what was recorded: the launches at the same addresses, in order.
  Launches take();
};
// Returns whether there is a recording.
bool is_recording();
// Records a launch if there is a recording. It must not keep device memory: see readable_view().
void record(std::function<void()> launch);
// Keeps what a recorded launch is about to overwrite, for the recording's end.
void keep_before_recording(const at::Tensor& tensor);

// Count what the host asks of the device.
void count_launch(const std::string& name);
void count_copy(bool to_device, bool waits);
void count_wait();

}  // namespace draftsmith::standin
