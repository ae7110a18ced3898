// Sources of the kernels of train/ (base/kernel_texts.h).
#pragma once

#include <span>

#include "base/kernel_texts.h"

namespace draftsmith {

// Returns the files *.cu and *.cuh below train/.
std::span<const KernelText> train_kernel_texts();

}  // namespace draftsmith
