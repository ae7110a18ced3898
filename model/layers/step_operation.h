// Operations of a step program (model/layers/step_program.h), with their tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aten.h"
#include "model/layers/kernels/step_operation.cuh"

namespace draftsmith::model {

// One operation. Tensors in the order of StepProgram's arguments; some may be undefined:
//   kLinear: y | x, norm, weight, bias, up, up's bias, residual; number: PostOp; factor: the norm's epsilon
//   kAttend: context | query, keys, values, row, prefix, own, position, bias table; factor: the scale
//   kWrite:  key cache, value cache | key, value, row, slot
//   kRotate: x | cosine, sine, position; number: width of a head
struct StepOperation {
  kernel::StepKind kind = kernel::kLinear;
  at::TensorList written;
  at::TensorList read;
  int64_t number = 0;
  double factor = 0;
};

// Returns the operations in order, of all their tensors one after the other: the arguments of run_steps. Views of them.
std::vector<StepOperation> step_operations(at::TensorList written, at::TensorList read, at::IntArrayRef kinds,
                                           at::IntArrayRef numbers, at::ArrayRef<double> factors);

}  // namespace draftsmith::model
