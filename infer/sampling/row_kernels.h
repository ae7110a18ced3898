// Passes over one row of V numbers on the CPU, as vector code: what sampling does at every position outside the models.
// float and double.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/aten.h"
#include "infer/sampling/warping.h"

namespace draftsmith::infer {

// What the passes read: fp64 stays, everything else becomes fp32.
at::Tensor promoted(const at::Tensor& logits);

// Index of the largest number, the lowest among equals, NaN never; kNoToken when the largest is inf or there is none
// but NaN and -inf. count >= 1.
template <class T>
int64_t row_argmax(const T* values, int64_t count);

// The softmax at temperature 1 in two numbers: p(x) = exp(logits[x] - highest) / total.
struct SoftmaxSums {
  double highest = 0;
  double total = 0;
};
template <class T>
SoftmaxSums row_softmax_sums(const T* logits, int64_t count);

// Warped probabilities of one row; temperature >= kGreedyBelow. All NaN where the logits
// hold a NaN or their largest is infinite. `out` [count] does not overlap `logits`.
template <class T>
void row_warp(const T* logits, int64_t count, const Warping& warping, T* out);

// The token at which the running sum of the weights passes `uniform` of their total; kNoToken when that is not finite.
template <class T>
int64_t row_draw(const T* weights, int64_t count, double uniform);

// max(0, p - q) into p; the sum of what is left.
template <class T>
double row_residual(T* p, const T* q, int64_t count);

// sum_x min(p(x), q(x))
template <class T>
double row_overlap(const T* p, const T* q, int64_t count);

// The softmax at temperature 1 with its entropy: sum of e^d d over d = logit - highest, where ids ruled out by -inf
// count nothing.
struct EntropySums {
  double highest = 0;
  double total = 0;
  double weighted = 0;
  // In nats; NaN where there is no such distribution.
  double entropy() const { return std::log(total) - weighted / total; }
};
template <class T>
EntropySums row_entropy_sums(const T* logits, int64_t count);

// The ids of the (at most) k largest numbers, falling, the lower id first among equals; -inf and NaN are never among
// them. Returns how many there are; `ids` has room for k >= 1.
template <class T>
int64_t row_top(const T* values, int64_t count, int64_t k, int64_t* ids);

}  // namespace draftsmith::infer
