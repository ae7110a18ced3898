// Sources of the kernels of model/ (base/kernel_texts.h).
#pragma once

#include <span>

#include "base/kernel_texts.h"

namespace draftsmith {

// Returns the files *.cu and *.cuh below model/.
std::span<const EmbeddedText> model_kernel_texts();

}  // namespace draftsmith
