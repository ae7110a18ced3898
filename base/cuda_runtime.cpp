#include "base/cuda_runtime.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.h"

namespace draftsmith {
namespace {

template <class Function>
void find_in_process(const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  if (function != nullptr) return;
  throw RunError({"CUDA", "the runtime library of this process lacks a function", name, "",
                  "build with a LibTorch for CUDA 12.8 or newer"});
}

}  // namespace

void CudaRuntime::check(int error, const std::string& what) const {
  if (error == 0) return;
  last_error();
  throw RunError({"CUDA", what, "", fmt::format("error {}: {}", error, error_text(error)),
                  "DRAFTSMITH_KERNELS=off runs LibTorch's operators in place of own kernels"});
}

CudaRuntime cuda_runtime() {
  CudaRuntime runtime;
  find_in_process("cudaDeviceGetAttribute", runtime.get_attribute);
  find_in_process("cudaLibraryLoadData", runtime.load_library);
  find_in_process("cudaLibraryGetKernel", runtime.get_kernel);
  find_in_process("cudaFuncGetAttributes", runtime.get_function_attributes);
  find_in_process("cudaLaunchKernelExC", runtime.launch);
  find_in_process("cudaGraphGetNodes", runtime.graph_nodes);
  find_in_process("cudaGetLastError", runtime.last_error);
  find_in_process("cudaGetErrorString", runtime.error_text);
  return runtime;
}

int capability_of(const CudaRuntime& runtime, int device) {
  // Numbers of CUDA's enumeration cudaDeviceAttr.
  constexpr int kCapabilityMajor = 75;
  constexpr int kCapabilityMinor = 76;
  int major = 0;
  int minor = 0;
  const std::string what = fmt::format("the architecture of device {} cannot be read", device);
  runtime.check(runtime.get_attribute(&major, kCapabilityMajor, device), what);
  runtime.check(runtime.get_attribute(&minor, kCapabilityMinor, device), what);
  return 10 * major + minor;
}

}  // namespace draftsmith
