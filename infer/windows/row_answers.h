// Answers of window rules on the CPU.
#pragma once

#include "base/aten.h"
#include "base/device_tensors.h"

namespace draftsmith::infer {

// Returns bool [B]: answer(value) of each of the values [B], fp32 or fp64 on the CPU.
template <class Answer>
at::Tensor row_answers(const at::Tensor& values, const Answer& answer) {
  at::Tensor answers = host_empty(values.sizes(), at::kBool);
  auto* out = answers.mutable_data_ptr<bool>();
  const bool wide = values.scalar_type() == at::kDouble;
  for (int64_t b = 0; b < values.numel(); ++b) {
    out[b] = wide ? answer(values.const_data_ptr<double>()[b]) : answer(values.const_data_ptr<float>()[b]);
  }
  return answers;
}

}  // namespace draftsmith::infer
