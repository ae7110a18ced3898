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

// Attribute of a launch: cudaLaunchAttribute.
struct LaunchAttribute {
  // The kernel may begin before the one ahead of it in the stream has ended (base/kernels/numbers.cuh).
  static constexpr int kProgrammaticSerialization = 6;

  int number = 0;
  int padding = 0;
  int value = 0;
  int rest[15] = {};  // of the 64 bytes of any attribute's value
};
static_assert(sizeof(LaunchAttribute) == 72);

// Configuration of a launch: cudaLaunchConfig_t.
struct LaunchConfig {
  Dim3 grid;
  Dim3 block;
  size_t shared_bytes = 0;
  void* stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};
static_assert(sizeof(LaunchConfig) == 56);

// Results are 0 or an error's number. Handles are opaque.
struct CudaRuntime {
  int (*get_attribute)(int* value, int attribute, int device) = nullptr;
  int (*load_library)(void** library, const void* code, void* options, void* values, unsigned count,
                      void* library_options, void** library_values, unsigned library_count) = nullptr;
  int (*get_kernel)(void** kernel, void* library, const char* name) = nullptr;
  int (*get_function_attributes)(void* attributes, const void* kernel) = nullptr;
  int (*launch)(const LaunchConfig* config, const void* kernel, void** arguments) = nullptr;
  int (*graph_nodes)(void* graph, void** nodes, size_t* count) = nullptr;
  int (*last_error)() = nullptr;
  const char* (*error_text)(int error) = nullptr;

  // Throws a RunError that says what failed unless `error` is 0. Clears the error that CUDA keeps.
  void check(int error, const std::string& what) const;
};

// Returns the functions of this process. Throws RunError if one is missing.
CudaRuntime cuda_runtime();

// Returns the compute capability of a device: 90 for 9.0. Throws RunError if it cannot be read.
int capability_of(const CudaRuntime& runtime, int device);

}  // namespace draftsmith
