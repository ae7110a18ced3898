// Warping, and passes over one row of V numbers on the CPU, as vector code for float and double. Sampling, acceptance
// rules and window rules call them at every position.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/aten.h"

namespace draftsmith::infer {

// ---- Warping of logits into the distribution to sample from
// Temperature, top-k, top-p, min-p.

// Temperatures below this limit mean greedy decoding. 1/T must be finite in single precision, and at 1e-30 a second
// token gets mass only if its logit is within 1e-28 of the largest.
constexpr double kGreedyBelow = 1e-30;

// The result of most_likely() and draw() for a row without usable numbers (a NaN, or an infinite largest one).
constexpr int64_t kNoToken = -2;

// Settings that apply to target and drafter alike, in this order. Among equal logits the lower id comes first, so
// exactly k tokens remain, and the same ones on every machine.
struct Warping {
  double temperature = 1;  // below kGreedyBelow: all mass on the most likely token
  int64_t top_k = 0;       // 0: off
  double top_p = 1;        // 1: off; else the smallest set of tokens whose mass reaches it
  double min_p = 0;        // 0: off; else tokens whose probability is at least this share of the largest

  bool greedy() const { return temperature < kGreedyBelow; }
};

// Returns the logits in a type that the passes read: fp64 stays, every other type becomes fp32.
at::Tensor promoted(const at::Tensor& logits);

// Returns whether the passes read these numbers as they are: fp32 or fp64 on the CPU, where they are faster than tensor
// operations.
inline bool has_row_kernels(const at::Tensor& values) {
  return values.is_cpu() && (values.scalar_type() == at::kFloat || values.scalar_type() == at::kDouble);
}

// Returns the index of the largest number, the lowest among equals; kNoToken if there is a NaN or the largest is inf.
// count >= 1.
template <class T>
int64_t row_argmax(const T* values, int64_t count);

// The softmax at temperature 1 in two numbers: p(x) = exp(logits[x] - highest) / total.
struct SoftmaxSums {
  double highest = 0;
  double total = 0;
};
template <class T>
SoftmaxSums row_softmax_sums(const T* logits, int64_t count);

// Writes the warped probabilities of one row to `out` [count], which must not overlap `logits`. They are all NaN if the
// logits hold a NaN or their largest is infinite. temperature >= kGreedyBelow.
template <class T>
void row_warp(const T* logits, int64_t count, const Warping& warping, T* out);

// Returns the token at which the running sum of the weights passes `uniform` times their total; kNoToken if the total
// is not finite.
template <class T>
int64_t row_draw(const T* weights, int64_t count, double uniform);

// Writes max(0, scale p - q) to p. Returns its sum.
template <class T>
double row_residual(T* p, const T* q, int64_t count, double scale = 1);

// Returns sum_x max(0, scale p(x) - q(x)).
template <class T>
double row_excess(const T* p, const T* q, int64_t count, double scale);

// Returns sum_x min(p(x), q(x)).
template <class T>
double row_overlap(const T* p, const T* q, int64_t count);

// The softmax at temperature 1 with its entropy. `weighted` is the sum of e^d d over d = logit - highest; ids ruled out
// by -inf add nothing.
struct EntropySums {
  double highest = 0;
  double total = 0;
  double weighted = 0;
  // Returns the entropy in nats; NaN if the logits are no distribution.
  double entropy() const { return std::log(total) - weighted / total; }
};
template <class T>
EntropySums row_entropy_sums(const T* logits, int64_t count);

// Writes the ids of at most k >= 1 largest numbers to `ids` [k], in falling order, the lower id first among equals.
// -inf and NaN are left out. Returns the number of ids.
template <class T>
int64_t row_top(const T* values, int64_t count, int64_t k, int64_t* ids);

}  // namespace draftsmith::infer
