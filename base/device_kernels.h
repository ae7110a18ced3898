// Launches own kernels (base/kernel_loader.h) on LibTorch's devices and streams.
//
// Where kernels cannot be used, callers compute with LibTorch's operators: no NVRTC, a source that does not compile, a
// LibTorch without CUDA, or DRAFTSMITH_KERNELS=off in the environment. Each reason but the last is reported once
// (report_fallback() in base/device_execution.h).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "base/cuda_runtime.h"
#include "base/kernel_texts.h"

namespace draftsmith {

class KernelLoader;

class DeviceKernels {
 public:
  explicit DeviceKernels(KernelSource source);
  ~DeviceKernels();

  // Returns the handle of a kernel on a CUDA device, or nullptr where it cannot be used. The first call compiles and
  // loads the source: make it before a CUDA graph is captured. Thread-safe.
  const void* find(c10::Device device, const std::string& kernel);
  // Returns the same for the kernel of a dtype, "NAME_bf16"; nullptr for dtypes other than fp32, bf16 and fp16.
  const void* find(c10::Device device, const std::string& name, c10::ScalarType type);

  // Launches what find() returned on the current stream of the device. The arguments must have the exact types of the
  // kernel's parameters; pointers are device memory. Throws RunError if CUDA refuses.
  template <class... Arguments>
  void launch(const void* kernel, c10::Device device, Dim3 grid, Dim3 block, Arguments... arguments) const {
    void* addresses[] = {&arguments...};
    launch_with(kernel, device, grid, block, addresses);
  }

 private:
  void launch_with(const void* kernel, c10::Device device, Dim3 grid, Dim3 block, void** arguments) const;
  const void* load(c10::Device device, const std::string& kernel);
  bool launches_early(c10::Device device) const;

  KernelSource source_;
  mutable std::mutex mutex_;
  std::unique_ptr<KernelLoader> loader_;
  bool failed_ = false;
  std::map<std::pair<c10::DeviceIndex, std::string>, const void*> kernels_;
};

}  // namespace draftsmith
