// Copies a step's K/V into cache slots.
#pragma once

#include "base/aten.h"
#include "model/layers/step_layout.h"

namespace draftsmith::model {

// Writes row b of from [B,L,H*K] to row rows[b] of cache [R,H,T,K], at slots base[b] + j for j < new_tokens[b]. A
// layout with places says where instead, and tokens beyond a row's new ones go to a slot that is never read.
void write_slots(const at::Tensor& cache, const std::vector<int64_t>& rows, const at::Tensor& from,
                 const StepLayout& layout);

}  // namespace draftsmith::model
