// Sources of the kernels of infer/ (base/kernel_texts.h).
#pragma once

#include <span>

#include "base/kernel_texts.h"

namespace draftsmith {

// Returns the files *.cu and *.cuh below infer/.
std::span<const EmbeddedText> infer_kernel_texts();

}  // namespace draftsmith
