// Requests of the host to a device while some work is done, as LibTorch's own profiler sees them.
#pragma once

#include <cstdint>
#include <functional>

#include <c10/core/Device.h>

namespace draftsmith::bench {

struct DeviceCounts {
  int64_t operators = 0;  // operators that the host dispatched, those inside others too
  int64_t kernels = 0;    // kernels that ran on the device, those of graphs too
  int64_t launches = 0;   // requests of the host to run a kernel or a graph
  int64_t copies_to_device = 0;
  int64_t copies_to_host = 0;
  int64_t waits = 0;   // times that the host waited for a stream, an event or the device
  int64_t graphs = 0;  // launches of captured graphs
};

// Does the work under the profiler. On the CPU only operators are counted. A device that shows no kernels (CUPTI is
// missing or not allowed) leaves kernels 0: callers must not take that for a measurement.
DeviceCounts count_requests(const std::function<void()>& work, c10::Device device);

}  // namespace draftsmith::bench
