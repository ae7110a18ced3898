#include "bench/support/device_counts.h"

#include <string>

#include <torch/csrc/autograd/profiler_kineto.h>

#include "base/device.h"

namespace draftsmith::bench {

namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

// Work on the device: a kernel or a copy. Streams that wait for each other are neither.
void count_on_device(const std::string& name, DeviceCounts& counts) {
  if (name.ends_with(" Sync") || name == "Stream Wait Event") return;
  if (name.starts_with("Memcpy HtoD")) {
    ++counts.copies_to_device;
  } else if (name.starts_with("Memcpy DtoH")) {
    ++counts.copies_to_host;
  } else if (!name.starts_with("Memcpy") && !name.starts_with("Memset")) {
    ++counts.kernels;
  }
}

// Calls of the host: operators ("aten::mm") and the CUDA runtime's functions.
void count_on_host(const std::string& name, DeviceCounts& counts) {
  if (name.starts_with("aten::")) ++counts.operators;
  if (name.find("Synchronize") != std::string::npos || name == "cudaMemcpy") ++counts.waits;
  const bool graph = name.find("GraphLaunch") != std::string::npos;
  if (graph) ++counts.graphs;
  if (graph || name.find("LaunchKernel") != std::string::npos) ++counts.launches;
}

}  // namespace

DeviceCounts count_requests(const std::function<void()>& work, c10::Device device) {
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  std::set<ActivityType> activities{ActivityType::CPU};
  if (device.is_cuda()) activities.insert(ActivityType::CUDA);
  synchronize(device);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities, {at::RecordScope::FUNCTION});
  work();
  synchronize(device);
  const auto result = profiler::disableProfiler();
  DeviceCounts counts;
  for (const profiler::KinetoEvent& event : result->events()) {
    if (event.deviceType() == c10::DeviceType::CPU) {
      count_on_host(event.name(), counts);
    } else {
      count_on_device(event.name(), counts);
    }
  }
  return counts;
}

}  // namespace draftsmith::bench
