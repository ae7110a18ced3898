// What window rules read of a drafter's distribution besides one probability: its entropy and its most likely tokens,
// at temperature 1, nothing cut.
#pragma once

#include <cstdint>
#include <span>

#include "base/aten.h"
#include "model/kinds/router.h"

namespace draftsmith::infer {

// Entropy in nats of each position: logits [N,V] -> fp64 [N] (fp32 on a GPU). NaN where a row holds no numbers.
at::Tensor entropy(const at::Tensor& logits);

// A router's features of each position: logits [N,V], on any device.
model::RouterFeatures router_features(const at::Tensor& logits, int64_t k);
// The same in tensor operations, fp32: how it is done on devices other than the CPU.
model::RouterFeatures tensor_router_features(const at::Tensor& logits, int64_t k);

// The same of one row on the CPU, float or double; fills probabilities [k] and ids [k] and returns the entropy.
template <class T>
double router_features(const T* logits, int64_t vocabulary, std::span<float> probabilities, std::span<int64_t> ids);

}  // namespace draftsmith::infer
