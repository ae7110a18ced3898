// Kernels of one source, compiled for a device's architecture, kept on disk, and loaded when they are first needed.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cuda_runtime.h"
#include "base/environment.h"
#include "base/kernel_texts.h"

namespace draftsmith {

struct CompiledKernels {
  std::string cubin;
  std::string log;  // warnings, then ptxas's report of registers and spills
};

// NVIDIA's run-time compiler for kernels. The library is loaded when it is first needed: programs link without it, and
// no CUDA header is needed.
class Nvrtc {
 public:
  // Loads the library at `path`. If it is empty: the one that the environment variable DRAFTSMITH_NVRTC names, the one
  // beside CUDA's runtime library, or the system's. Throws RunError if none can be loaded.
  explicit Nvrtc(const std::string& path = "");
  ~Nvrtc();
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  // Returns the version: "13.0".
  const std::string& version() const { return version_; }

  // Returns the compute capabilities that it compiles for, ascending: 80, 90, ...
  const std::vector<int>& capabilities() const { return capabilities_; }

  // Compiles for an architecture: "sm_90". Thread-safe. Throws RunError with the log if the source has an error.
  CompiledKernels compile(const KernelSource& source, const std::string& architecture) const;

 private:
  struct Functions;
  std::unique_ptr<const Functions> functions_;
  std::string version_;
  std::vector<int> capabilities_;
};

// Returns the folder that the environment variable DRAFTSMITH_KERNEL_CACHE names. Without it: draftsmith/kernels in
// XDG_CACHE_HOME or in ~/.cache. Empty, which keeps nothing, if none of them is set.
std::filesystem::path kernel_cache_folder();

// Returns the hash of all that a cubin depends on: texts, options, architecture ("sm_90") and NVRTC's version.
std::string kernel_key(const KernelSource& source, const std::string& architecture, const std::string& compiler);

// Compiled kernels on disk, so that a machine compiles each source once for an architecture. A file holds a line of
// magic, its key, the hash of what follows, and the cubin. One that is damaged or belongs to another key counts as
// absent, and is replaced.
class KernelCache {
 public:
  // An empty folder keeps nothing.
  explicit KernelCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Returns the cubin that was stored under the key; nothing if there is none. A damaged file gives a warning.
  std::optional<std::string> find(const std::string& key) const;

  // Stores a cubin, and makes the folder if needed. The first failure gives a warning.
  void store(const std::string& key, std::string_view cubin);

  // Returns where find() and store() expect the key's file.
  std::filesystem::path file_of(const std::string& key) const;

 private:
  std::filesystem::path folder_;
  std::atomic<bool> warned_ = false;
};

// Compiler, cache and CUDA functions that all loaders of a process share.
struct KernelTools {
  // `nvrtc` is the compiler's path, or empty as for Nvrtc. Throws RunError if it cannot be loaded.
  explicit KernelTools(CudaRuntime functions, const std::string& nvrtc = "",
                       std::filesystem::path cache_folder = kernel_cache_folder())
      : runtime(functions),
        compiler(nvrtc),
        cache(std::move(cache_folder)),
        early_launches(!switched_off("DRAFTSMITH_PROGRAMMATIC_LAUNCH")) {}

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
