// The type of a training's matrix products, from the option `precision`.
#pragma once

#include <string>

#include "base/aten.h"

namespace draftsmith::train {

// Returns whether products are bf16 on this machine: of "auto" on CPUs with instructions for products of bf16, where
// training in bf16 was measured to be faster (base/bf16_product.h), unless DRAFTSMITH_CPU forbids the instructions.
bool trains_in_bf16(const std::string& precision, at::Device device);

}  // namespace draftsmith::train
