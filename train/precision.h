// The type of a training's matrix products, from the option `precision`.
#pragma once

#include <string>

#include "base/aten.h"

namespace draftsmith::train {

// Returns whether products are bf16 on this machine: of "auto" on CPUs whose instructions have tiles of bf16 (AMX),
// where training in bf16 was measured to be faster.
bool trains_in_bf16(const std::string& precision, at::Device device);

}  // namespace draftsmith::train
