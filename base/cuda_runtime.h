// The few functions of CUDA's runtime library that launch kernels, found in the process: LibTorch's CUDA half brings
// the library. Programs link and run without it.
#pragma once

#include <cstddef>
#include <string>

namespace draftsmith {

// Sizes of a grid in blocks, or of a block in threads, as CUDA passes them.
struct Dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

// Results are 0 or an error's number. Handles are opaque.
struct CudaRuntime {
  int (*get_attribute)(int* value, int attribute, int device) = nullptr;
  int (*load_library)(void** library, const void* code, void* options, void* values, unsigned count,
                      void* library_options, void** library_values, unsigned library_count) = nullptr;
  int (*get_kernel)(void** kernel, void* library, const char* name) = nullptr;
  int (*get_function_attributes)(void* attributes, const void* kernel) = nullptr;
  int (*launch)(const void* kernel, Dim3 grid, Dim3 block, void** arguments, size_t shared_bytes,
                void* stream) = nullptr;
  // The same for blocks that wait for one another: fails unless all fit on the device at once.
  int (*launch_together)(const void* kernel, Dim3 grid, Dim3 block, void** arguments, size_t shared_bytes,
                         void* stream) = nullptr;
  int (*last_error)() = nullptr;
  const char* (*error_text)(int error) = nullptr;

  // Throws a RunError that says what failed unless `error` is 0. Clears the error that CUDA keeps.
  void check(int error, const std::string& what) const;
};

// Returns the functions of this process. Throws RunError if one is missing.
CudaRuntime cuda_runtime();

}  // namespace draftsmith
