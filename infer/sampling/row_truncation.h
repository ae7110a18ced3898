// Top-k and top-p of one row on the CPU without sorting it, for float and double. Both keep the first tokens in the
// order by falling logit, the lower id first among equals.
#pragma once

#include <cstdint>

namespace draftsmith::infer {

// Sets the weights of all but the first k tokens to 0, 1 <= k < count. Returns the sum of the other weights.
template <class T>
double row_keep_top_k(const T* logits, int64_t count, int64_t k, T* weights);

// Sets the weights of all tokens to 0 that have a mass of at least `mass` before them. The first token stays. Returns
// the sum of the other weights.
template <class T>
double row_keep_top_p(const T* logits, int64_t count, double mass, T* weights);

}  // namespace draftsmith::infer
