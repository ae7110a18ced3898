// Features of a drafter's distribution for window rules: its entropy and its most likely tokens, at temperature 1
// without truncation.
#pragma once

#include <cstdint>
#include <span>

#include "base/aten.h"
#include "model/models/router.h"

namespace draftsmith::infer {

// Returns the entropy in nats of each position: logits [N,V] -> fp64 [N] (fp32 on a GPU). NaN if a row is no
// distribution.
at::Tensor entropy(const at::Tensor& logits);

// Returns a router's features of each position: logits [N,V], on any device, in fp32 tensor operations.
model::RouterFeatures router_features(const at::Tensor& logits, int64_t k);

// Writes a router's features of one row on the CPU, float or double, to probabilities [k] and ids [k], without
// allocations. Returns the entropy.
template <class T>
double router_features(const T* logits, int64_t vocabulary, std::span<float> probabilities, std::span<int64_t> ids);

}  // namespace draftsmith::infer
