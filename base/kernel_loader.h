// Kernels of one source, compiled for a device's architecture and loaded when they are first needed.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "base/cuda_runtime.h"
#include "base/environment.h"
#include "base/kernel_cache.h"
#include "base/kernel_texts.h"
#include "base/nvrtc.h"

namespace draftsmith {

// Compiler, cache and CUDA functions that all loaders of a process share.
struct KernelTools {
  // `nvrtc` is the compiler's path, or empty as in base/nvrtc.h. Throws RunError if it cannot be loaded.
  explicit KernelTools(CudaRuntime functions, const std::string& nvrtc = "",
                       std::filesystem::path cache_folder = kernel_cache_folder())
      : runtime(functions),
        compiler(nvrtc),
        cache(std::move(cache_folder)),
        early_launches(switched_on("DRAFTSMITH_PROGRAMMATIC_LAUNCH")) {}

  CudaRuntime runtime;
  Nvrtc compiler;
  KernelCache cache;
  bool early_launches;  // kernels may begin before the ones ahead of them have ended (base/kernels/numbers.cuh)
};

// Returns the architecture to compile for: the device's own, or else the newest before it that its hardware runs.
// Throws RunError if the compiler knows neither.
std::string architecture_for(int capability, const Nvrtc& compiler);

// First architecture whose hardware launches kernels early.
constexpr int kFirstEarly = 90;

// Returns a source that waits for its inputs, for kernels that are launched early.
KernelSource early_source(KernelSource source);

// Returns the source's cubin for an architecture, from the cache or from the compiler. Throws RunError.
std::string cubin_of(const KernelSource& source, const std::string& architecture, KernelTools& tools);

// Loaded kernels stay until the process ends, and serve all devices of an architecture. Callers lock.
class KernelLoader {
 public:
  KernelLoader(KernelSource source, std::shared_ptr<KernelTools> tools)
      : source_(std::move(source)), tools_(std::move(tools)) {}

  // Returns the handle of a kernel on the CUDA device `device`, which must be the current one. Throws RunError if the
  // source cannot be compiled or loaded, or has no such kernel.
  const void* kernel(int device, const std::string& name);

  // Returns whether kernels are launched early where the hardware can do it. Needs no lock.
  bool may_launch_early() const { return tools_->early_launches && source_.waits_for_inputs; }
  // Returns whether the kernels of a device are launched early: the tools say so, the source waits for its inputs, and
  // the hardware can do it.
  bool launches_early(int device);

  const KernelTools& tools() const { return *tools_; }

 private:
  const std::string& architecture_of(int device);
  bool is_early(const std::string& architecture) const;
  void* library_for(const std::string& architecture);

  KernelSource source_;
  std::shared_ptr<KernelTools> tools_;
  std::map<int, std::string> architectures_;                            // by device
  std::map<std::string, void*> libraries_;                              // by architecture
  std::map<std::pair<std::string, std::string>, const void*> kernels_;  // by architecture and name
};

}  // namespace draftsmith
