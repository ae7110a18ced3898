// Cross entropy over the vocabulary with label smoothing, and its slope along the logits, for
// train/objectives/cross_entropy_operator.h. One position a block, which reads its logits twice and writes them once.
//
// Sums are of fp32 (fp64 for fp64), in an order that the number of threads alone decides: a position's loss does not
// depend on the others. NaN and positive infinity among the logits give a loss of NaN.
#include "base/kernels/block_sum.cuh"
#include "base/kernels/numbers.cuh"
#include "train/objectives/kernels/softmax_sums.cuh"

namespace kernel {

// Writes the loss (1-e) -log q(label) + e mean(-log q) of each position. With `write_slope`, logits become the slope of
// the loss along them: q - e/V, less 1-e at the label.
template <class T>
__device__ void cross_entropy(T* logits, const Int64* labels, T* losses, int vocabulary, double smoothing,
                              int write_slope) {
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  T* row = logits + static_cast<Int64>(blockIdx.x) * vocabulary;
  const int label = static_cast<int>(labels[blockIdx.x]);
  const T own = row[label];  // before it is overwritten
  SoftmaxSum<T> sum;
  T own_plain = 0;
  for (int i = thread; i < vocabulary; i += threads) {
    sum.add(row[i]);
    own_plain += row[i];
  }
  const Softmax<T> q = softmax_of_block(sum);
  const T plain = block_sum(own_plain);
  const T even = static_cast<T>(smoothing) / static_cast<T>(vocabulary);
  const T kept = static_cast<T>(1 - smoothing);
  if (thread == 0) {
    // Of differences from the largest logit: a small loss of large logits keeps its digits.
    const T spread = smoothing > 0 ? even * plain - static_cast<T>(smoothing) * q.largest : T(0);
    losses[blockIdx.x] = q.log_total - kept * (own - q.largest) - spread;
  }
  if (write_slope == 0) return;
  for (int i = thread; i < vocabulary; i += threads) {
    const T probability = exp(row[i] - q.largest) / q.total;
    row[i] = probability - even - (i == label ? kept : T(0));
  }
}

}  // namespace kernel

#define CROSS_ENTROPY_KERNEL(suffix, T)                                                                   \
  extern "C" __global__ void __launch_bounds__(1024, 1) cross_entropy_##suffix(                           \
      T* logits, const long long* labels, T* losses, int vocabulary, double smoothing, int write_slope) { \
    kernel::cross_entropy<T>(logits, labels, losses, vocabulary, smoothing, write_slope);                 \
  }

CROSS_ENTROPY_KERNEL(fp32, float)
CROSS_ENTROPY_KERNEL(fp64, double)
