// NVIDIA's run-time compiler for kernels. The library is loaded when it is first needed: programs link without it, and
// no CUDA header is needed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/kernel_texts.h"

namespace draftsmith {

struct CompiledKernels {
  std::string cubin;
  std::string log;  // warnings, then ptxas's report of registers and spills
};

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

// Resources that a kernel uses, as ptxas reports them.
struct KernelUse {
  std::string kernel;
  int registers = 0;     // of a thread
  int spilled = 0;       // bytes of spill stores and loads of a thread
  int stack = 0;         // bytes of a thread
  int shared_bytes = 0;  // of a block
};

// Reads the uses of all kernels from CompiledKernels::log, by name.
std::vector<KernelUse> kernel_uses(const std::string& log);

}  // namespace draftsmith
