// A stand-in accelerator for tests of code that runs on a GPU, where there is none.
//
// It is LibTorch's device for private use, here called "standin:0". Every operator is one launch: it checks that its
// tensors are on the device, and computes on the CPU. Device memory cannot be read by the host: a read through
// data_ptr() faults, as it would on a GPU. Launches, copies and waits are counted, so that tests can hold them to
// budgets.
//
// Work is recorded and replayed as a CUDA graph is (base/device_graph.h): a replay is one launch, and a recording with
// a wait or a copy from or to the host fails. Recorded launches know addresses, not tensors: they read what lies there
// when they are replayed. Memory that a recording takes is its WorkMemory's alone. Released memory is overwritten with
// NaN and -1, so recorded work shows what it reads too late.
//
// It does not show races, the order of streams, a GPU's rounding, or kernels' speed. Operators that launch several
// kernels on a GPU count once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include <c10/core/Device.h>

namespace draftsmith::standin {

// Returns the device. The first call makes it LibTorch's accelerator, in place of a GPU, for the rest of the process.
c10::Device device();

// Requests of the host to the device since reset_counts().
struct Counts {
  std::map<std::string, int64_t> launches;  // by operator: "mm", "softmax"
  int64_t copies_to_device = 0, copies_to_host = 0;
  int64_t waits = 0;  // times that the host waited for the device, blocking copies included

  // Returns the number of launches of all operators.
  int64_t all_launches() const {
    int64_t sum = 0;
    for (const auto& [name, count] : launches) sum += count;
    return sum;
  }
};

Counts counts();
void reset_counts();

// Returns the most bytes of tensors at a time since the last call.
size_t take_peak_bytes();
// Lets tensors have so many bytes at a time, each rounded up to a power of two; 0: no limit.
void limit_bytes(size_t bytes);

}  // namespace draftsmith::standin
