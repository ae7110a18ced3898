// Rotary positions of a cached step's queries and keys.
#pragma once

#include <cstdint>
#include <vector>

#include "model/layers/rotary.h"

namespace draftsmith::model {

// Positions of a step's tokens.
struct StepPositions {
  const std::vector<int64_t>& on_host;  // [B*L], clamped to the table; read on CPUs only
  at::Tensor on_device;                 // int64 [B,L] inside the table; undefined on CPUs
};

// Returns a step's x [B,L,h*K], each token rotated by its position; without gradient. Works in place where it can, on
// devices other than the CPU always: x is a temporary of the step. [B,L,h*K]
at::Tensor rotate_step(const at::Tensor& x, int64_t head_width, const RotaryTable& table,
                       const StepPositions& positions);

}  // namespace draftsmith::model
