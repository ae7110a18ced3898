// Sources of GPU kernels (*.cu, *.cuh), embedded in the program by CMake (cmake/kernels.cmake).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/util.h"

namespace draftsmith {

// Source that is compiled at run time (base/kernel_loader.h). Its files are named by their paths below the repository.
struct KernelSource {
  EmbeddedText main;
  std::vector<EmbeddedText> headers;  // found by #include "NAME"
  std::vector<std::string> options;   // of NVRTC: "--fmad=false"
  bool waits_for_inputs = false;      // its kernels call wait_for_inputs() (base/kernels/numbers.cuh)
};

// Return the files of a library with kernels, each its own.
std::span<const EmbeddedText> base_kernel_texts();
std::span<const EmbeddedText> model_kernel_texts();
std::span<const EmbeddedText> infer_kernel_texts();

// Returns the source NAME of `texts`, with the headers (*.cuh) of base/ and of `texts`. Throws std::logic_error for a
// name that is none of theirs.
KernelSource kernel_source(std::span<const EmbeddedText> texts, std::string_view name,
                           std::vector<std::string> options = {});

// Returns the source likewise for the kernels of one type alone, "fp32", "bf16" or "fp16": with -DPREFIX_SUFFIX=bf16
// and -DPREFIX_TYPE=BFloat16, and --fmad=false. Its kernels must wait for their inputs. Throws std::logic_error for
// other types.
KernelSource kernel_source_of_type(std::span<const EmbeddedText> texts, std::string_view name,
                                   const std::string& prefix, const std::string& type);

}  // namespace draftsmith
