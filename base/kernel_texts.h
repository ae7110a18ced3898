// Sources of GPU kernels (*.cu, *.cuh), embedded in the program by CMake (cmake/kernels.cmake).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace draftsmith {

// File of kernels, or a header that such files include, by its path below the repository.
struct KernelText {
  std::string_view name;
  std::string_view text;
};

// Source that is compiled at run time (base/nvrtc.h).
struct KernelSource {
  KernelText main;
  std::vector<KernelText> headers;   // found by #include "NAME"
  std::vector<std::string> options;  // of NVRTC: "--fmad=false"
};

// Returns the files of base/. Each library with kernels has such a function.
std::span<const KernelText> base_kernel_texts();

// Returns the source NAME of `texts`, with the headers (*.cuh) of base/ and of `texts`. Throws std::logic_error for a
// name that is none of theirs.
KernelSource kernel_source(std::span<const KernelText> texts, std::string_view name,
                           std::vector<std::string> options = {});

}  // namespace draftsmith
