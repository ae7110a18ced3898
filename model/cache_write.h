// Copies a step's K/V into cache slots.
#pragma once

#include <ATen/ATen.h>

#include "model/transformer_state.h"

namespace draftsmith::model {

// cache [B,H,T,K] at slots base[b] + j takes from [B,L,H*K], j < new_tokens[b]. On other devices than CPUs the tokens
// beyond a row's new ones go to the cache's last slot, which is never read.
void write_slots(const at::Tensor& cache, const at::Tensor& from, const StepLayout& layout);

}  // namespace draftsmith::model
