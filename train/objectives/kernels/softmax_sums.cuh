// Sums of a softmax over the numbers of a row, which the threads of a block share.
#pragma once

#include "base/kernels/block_largest.cuh"
#include "base/kernels/block_sum.cuh"

namespace kernel {

// Returns a number below all logits that count: exp(logit - least) of none of them, -infinity included, is NaN.
template <class T>
__device__ inline T least() {
  return static_cast<T>(-3e38);
}

// The largest number so far, and the sum of exp(number - largest).
template <class T>
struct SoftmaxSum {
  T largest = least<T>();
  T exponentials = 0;

  __device__ void add(T number) {
    if (number > largest) {
      exponentials *= exp(largest - number);
      largest = number;
    }
    exponentials += exp(number - largest);
  }
};

// A softmax over all numbers of a row. NaN and positive infinity among them make it NaN.
template <class T>
struct Softmax {
  T largest;
  T total;  // sum of exp(number - largest)
  T log_total;

  __device__ T log_probability(T number) const { return number - largest - log_total; }
};

// Returns the softmax over the numbers of all threads, to each of them. Every thread calls it.
template <class T>
__device__ Softmax<T> softmax_of_block(const SoftmaxSum<T>& own) {
  const T largest = block_largest(own.largest);
  const T total = block_sum(own.exponentials * exp(own.largest - largest));
  return {largest, total, log(total)};
}

}  // namespace kernel
