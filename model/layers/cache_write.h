// Copies K/V into cache slots: a step's, and those of other rows.
#pragma once

#include "base/aten.h"
#include "model/layers/step_layout.h"

namespace draftsmith::model {

// Writes row b of from [B,L,H*K] to row rows[b] of cache [R,H,T,K], at slots base[b] + j for j < new_tokens[b], on the
// CPU. (Other devices: write_at() in model/layers/step_operators.h.)
void write_slots(const at::Tensor& cache, const std::vector<int64_t>& rows, const at::Tensor& from,
                 const StepLayout& layout);

// Copies the first `slots` slots of row from[i] of cache [R,H,T,K] to row to[i]. No row is in both lists.
void copy_rows(const at::Tensor& cache, const std::vector<int64_t>& from, const std::vector<int64_t>& to,
               int64_t slots);

}  // namespace draftsmith::model
