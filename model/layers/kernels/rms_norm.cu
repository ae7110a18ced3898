// RMS norm, y = w x r with r = 1/sqrt(mean(x^2) + eps), and its gradient, for model/layers/rms_norm.h.
//
// Sums are of fp32 (fp64 for fp64), in an order that the width alone decides: a row's result does not depend on the
// number of rows. The normalised row is rounded to the weight's type before the product, as tensor operations do.
// Compiled with --fmad=false. Blocks have whole warps, at most 1,024 threads.
#include "base/kernels/block_sum.cuh"
#include "base/kernels/numbers.cuh"

namespace kernel {

// Computes one row a block.
template <class X, class W, class Sum = typename Wide<X>::Type>
__device__ void rms_norm(const X* x, const W* weight, W* y, Sum* inverse, int width, double epsilon) {
  const Int64 row = blockIdx.x;
  x += row * width;
  y += row * width;
  Sum squares = 0;
  for (int i = threadIdx.x; i < width; i += blockDim.x) squares += widen(x[i]) * widen(x[i]);
  const Sum mean = block_sum(squares) / static_cast<Sum>(width);
  const Sum factor = Sum(1) / sqrt(mean + static_cast<Sum>(epsilon));
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const W normed = Rounding<W>::of(widen(x[i]) * factor);
    y[i] = Rounding<W>::of(widen(normed) * widen(weight[i]));
  }
  if (threadIdx.x == 0) inverse[row] = factor;
}

// Computes dx = r (w g) - x r^3 mean(w g x) of the rows `blockIdx.x`, `blockIdx.x + gridDim.x`, ..., and the block's
// share of dw, the sum of g x r over these rows, in partial_dw [gridDim.x, width].
template <class X, class W, class Sum = typename Wide<X>::Type>
__device__ void rms_norm_backward(const W* gradient, const X* x, const W* weight, const Sum* inverse, X* dx,
                                  Sum* partial_dw, Int64 rows, int width) {
  Sum* dw = partial_dw + static_cast<Int64>(blockIdx.x) * width;
  for (Int64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const W* gs = gradient + row * width;
    const X* xs = x + row * width;
    X* ds = dx + row * width;
    const Sum r = inverse[row];
    Sum products = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
      products += widen(weight[i]) * widen(gs[i]) * widen(xs[i]);
    }
    const Sum shared = block_sum(products) * r * r * r / static_cast<Sum>(width);
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
      const Sum g = widen(gs[i]);
      const Sum normed = widen(Rounding<W>::of(widen(xs[i]) * r));
      ds[i] = Rounding<X>::of(widen(weight[i]) * g * r - widen(xs[i]) * shared);
      dw[i] = g * normed + (row == static_cast<Int64>(blockIdx.x) ? Sum(0) : dw[i]);
    }
  }
}

// Sums partial_dw [parts, width] over its parts. Block: 32 columns by 32 threads, each of which sums every 32nd part.
template <class W, class Sum = typename Wide<W>::Type>
__device__ void sum_parts(const Sum* partial_dw, W* dw, int parts, int width) {
  __shared__ Sum sums[32][33];
  const int column = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x);
  Sum sum = 0;
  if (column < width) {
    for (int part = threadIdx.y; part < parts; part += 32) sum += partial_dw[static_cast<Int64>(part) * width + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int i = 1; i < 32; ++i) sum += sums[i][threadIdx.x];
  dw[column] = Rounding<W>::of(sum);
}

}  // namespace kernel

// Kernels of inputs of type X and weights of type W, with sums of type Sum.
#define RMS_NORM_KERNELS(suffix, X, W, Sum)                                                                           \
  extern "C" __global__ void __launch_bounds__(1024)                                                                  \
      rms_norm_##suffix(const X* __restrict__ x, const W* __restrict__ weight, W* __restrict__ y,                     \
                        Sum* __restrict__ inverse, int width, double epsilon) {                                       \
    kernel::rms_norm<X, W>(x, weight, y, inverse, width, epsilon);                                                    \
  }                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(1024) rms_norm_backward_##suffix(                                      \
      const W* __restrict__ gradient, const X* __restrict__ x, const W* __restrict__ weight,                          \
      const Sum* __restrict__ inverse, X* __restrict__ dx, Sum* __restrict__ partial_dw, long long rows, int width) { \
    kernel::rms_norm_backward<X, W>(gradient, x, weight, inverse, dx, partial_dw, rows, width);                       \
  }

RMS_NORM_KERNELS(fp32_fp32, float, float, float)
RMS_NORM_KERNELS(fp64_fp64, double, double, double)
RMS_NORM_KERNELS(bf16_bf16, kernel::BFloat16, kernel::BFloat16, float)
RMS_NORM_KERNELS(fp16_fp16, kernel::Half, kernel::Half, float)
RMS_NORM_KERNELS(bf16_fp32, kernel::BFloat16, float, float)
RMS_NORM_KERNELS(fp16_fp32, kernel::Half, float, float)
RMS_NORM_KERNELS(fp32_bf16, float, kernel::BFloat16, float)
RMS_NORM_KERNELS(fp32_fp16, float, kernel::Half, float)

#define SUM_PARTS_KERNEL(name, W, Sum)                                                     \
  extern "C" __global__ void __launch_bounds__(1024)                                       \
      name(const Sum* __restrict__ partial_dw, W* __restrict__ dw, int parts, int width) { \
    kernel::sum_parts<W>(partial_dw, dw, parts, width);                                    \
  }

SUM_PARTS_KERNEL(rms_norm_sum_fp32, float, float)
SUM_PARTS_KERNEL(rms_norm_sum_fp64, double, double)
SUM_PARTS_KERNEL(rms_norm_sum_bf16, kernel::BFloat16, float)
SUM_PARTS_KERNEL(rms_norm_sum_fp16, kernel::Half, float)
