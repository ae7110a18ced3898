// Cross entropy over the vocabulary with label smoothing, and its slope along the logits, for
// train/objectives/losses.h. One position a block, which reads its logits twice and writes them once.
//
// Sums are of fp32, in an order that the number of threads alone decides: a position's loss does not
// depend on the others. NaN and positive infinity among the logits give a loss of NaN.
#include "base/kernels/block.cuh"
#include "base/kernels/numbers.cuh"

namespace kernel {

// A number below all logits that count: exp(logit - kLeast) of none of them, -infinity included, is NaN.
constexpr float kLeast = -3e38f;

// The largest number so far, and the sum of exp(number - largest).
struct SoftmaxSum {
  float largest = kLeast;
  float exponentials = 0;

  __device__ void add(float number) {
    if (number > largest) {
      exponentials *= exp(largest - number);
      largest = number;
    }
    exponentials += exp(number - largest);
  }
};

// A softmax over all numbers of a row. NaN and positive infinity among them make it NaN.
struct Softmax {
  float largest;
  float total;  // sum of exp(number - largest)
  float log_total;
};

// Returns the softmax over the numbers of all threads, to each of them. Every thread calls it.
__device__ Softmax softmax_of_block(const SoftmaxSum& own) {
  const float largest = block_largest(own.largest);
  const float total = block_sum(own.exponentials * exp(own.largest - largest));
  return {largest, total, log(total)};
}

// Writes the loss (1-e) -log q(label) + e mean(-log q) of each position. With `write_slope`, logits become the slope of
// the loss along them: q - e/V, less 1-e at the label.
__device__ void cross_entropy(float* logits, const Int64* labels, float* losses, int vocabulary, double smoothing,
                              int write_slope) {
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  float* row = logits + static_cast<Int64>(blockIdx.x) * vocabulary;
  const int label = static_cast<int>(labels[blockIdx.x]);
  const float own = row[label];  // before it is overwritten
  SoftmaxSum sum;
  float own_plain = 0;
  for (int i = thread; i < vocabulary; i += threads) {
    sum.add(row[i]);
    own_plain += row[i];
  }
  const Softmax q = softmax_of_block(sum);
  const float plain = block_sum(own_plain);
  const float even = static_cast<float>(smoothing) / static_cast<float>(vocabulary);
  const float kept = static_cast<float>(1 - smoothing);
  if (thread == 0) {
    // Of differences from the largest logit: a small loss of large logits keeps its digits.
    const float spread = smoothing > 0 ? even * plain - static_cast<float>(smoothing) * q.largest : 0.0f;
    losses[blockIdx.x] = q.log_total - kept * (own - q.largest) - spread;
  }
  if (write_slope == 0) return;
  for (int i = thread; i < vocabulary; i += threads) {
    const float probability = exp(row[i] - q.largest) / q.total;
    row[i] = probability - even - (i == label ? kept : 0.0f);
  }
}

}  // namespace kernel

extern "C" __global__ void __launch_bounds__(1024, 1)
    cross_entropy_fp32(float* logits, const long long* labels, float* losses, int vocabulary, double smoothing,
                       int write_slope) {
  kernel::cross_entropy(logits, labels, losses, vocabulary, smoothing, write_slope);
}
