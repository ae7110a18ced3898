// RMS norm, y = w x r with r = 1/sqrt(mean(x^2) + eps), and its gradient, for model/layers/rms_norm.h.
//
// Sums are of fp32 in an order that the width alone decides: a row's result does not depend on the
// number of rows. The normalised row is rounded to the weight's type before the product, as tensor operations do.
// Compiled with --fmad=false. Blocks have whole warps, at most 1,024 threads, for which 64 registers are free.
#include "base/kernels/block.cuh"
#include "base/kernels/numbers.cuh"

namespace kernel {

// Numbers of a row that one thread works on at once, a block's width apart.
template <class T>
struct Four {
  T values[4];
};

// Returns the numbers i, i + blockDim.x, ... of a row, and zeros behind its end. All four loads are in flight at once.
template <class T>
__device__ Four<T> load_four(const T* row, int i, int width) {
  Four<T> four = {};
  KERNEL_UNROLL(4)
  for (int part = 0; part < 4; ++part) {
    const int place = i + part * static_cast<int>(blockDim.x);
    if (place < width) four.values[part] = row[place];
  }
  return four;
}

// Computes one row a block.
template <class X, class W>
__device__ void rms_norm(const X* x, const W* weight, W* y, float* inverse, int width, double epsilon) {
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const Int64 row = blockIdx.x;
  x += row * width;
  y += row * width;
  float squares = 0;
  for (int i = thread; i < width; i += 4 * threads) {
    const Four<X> xs = load_four(x, i, width);
    KERNEL_UNROLL(4)
    for (int part = 0; part < 4; ++part) squares += widen(xs.values[part]) * widen(xs.values[part]);
  }
  const float mean = block_sum(squares) / static_cast<float>(width);
  const float factor = 1.0f / sqrt(mean + static_cast<float>(epsilon));
  for (int i = thread; i < width; i += 4 * threads) {
    const Four<X> xs = load_four(x, i, width);
    const Four<W> ws = load_four(weight, i, width);
    KERNEL_UNROLL(4)
    for (int part = 0; part < 4; ++part) {
      const W normed = Rounding<W>::of(widen(xs.values[part]) * factor);
      const W product = Rounding<W>::of(widen(normed) * widen(ws.values[part]));
      if (i + part * threads < width) y[i + part * threads] = product;
    }
  }
  if (thread == 0) inverse[row] = factor;
}

// Returns this thread's share of the sum of w g x over a row.
template <class X, class W>
__device__ float sum_of_products(const W* gradient, const X* x, const W* weight, int width) {
  float products = 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += 4 * static_cast<int>(blockDim.x)) {
    const Four<X> xs = load_four(x, i, width);
    const Four<W> gs = load_four(gradient, i, width);
    const Four<W> ws = load_four(weight, i, width);
    KERNEL_UNROLL(4)
    for (int part = 0; part < 4; ++part) {
      products += widen(ws.values[part]) * widen(gs.values[part]) * widen(xs.values[part]);
    }
  }
  return products;
}

// Computes dx = r (w g) - x r^3 mean(w g x) of the rows `blockIdx.x`, `blockIdx.x + gridDim.x`, ..., and the block's
// share of dw, the sum of g x r over these rows, in partial_dw [gridDim.x, width].
template <class X, class W>
__device__ void rms_norm_backward(const W* gradient, const X* x, const W* weight, const float* inverse, X* dx,
                                  float* partial_dw, Int64 rows, int width) {
  float* dw = partial_dw + static_cast<Int64>(blockIdx.x) * width;
  const Int64 first = blockIdx.x;
  for (Int64 row = first; row < rows; row += gridDim.x) {
    const W* gs = gradient + row * width;
    const X* xs = x + row * width;
    X* ds = dx + row * width;
    const float r = inverse[row];
    const float dot = block_sum(sum_of_products(gs, xs, weight, width));
    const float shared = dot * r * r * r / static_cast<float>(width);
    for (int i = static_cast<int>(threadIdx.x); i < width; i += static_cast<int>(blockDim.x)) {
      const float g = widen(gs[i]);
      const float normed = widen(Rounding<W>::of(widen(xs[i]) * r));
      ds[i] = Rounding<X>::of(widen(weight[i]) * g * r - widen(xs[i]) * shared);
      dw[i] = g * normed + (row == first ? 0.0f : dw[i]);
    }
  }
}

// Sums partial_dw [parts, width] over its parts. Block: 32 columns by 32 threads, each of which sums every 32nd part.
template <class W>
__device__ void sum_parts(const float* partial_dw, W* dw, int parts, int width) {
  __shared__ float sums[32][33];
  const int column = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x);
  float sum = 0;
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

// Kernels of inputs of type X and weights of type W.
#define RMS_NORM_KERNELS(suffix, X, W)                                                                                \
  extern "C" __global__ void __launch_bounds__(1024, 1)                                                               \
      rms_norm_##suffix(const X* __restrict__ x, const W* __restrict__ weight, W* __restrict__ y,                     \
                        float* __restrict__ inverse, int width, double epsilon) {                                     \
    kernel::rms_norm<X, W>(x, weight, y, inverse, width, epsilon);                                                    \
  }                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(1024, 1)                                                               \
      rms_norm_backward_##suffix(const W* __restrict__ gradient, const X* __restrict__ x,                             \
                                 const W* __restrict__ weight, const float* __restrict__ inverse, X* __restrict__ dx, \
                                 float* __restrict__ partial_dw, long long rows, int width) {                         \
    kernel::rms_norm_backward<X, W>(gradient, x, weight, inverse, dx, partial_dw, rows, width);                       \
  }

RMS_NORM_KERNELS(fp32_fp32, float, float)
RMS_NORM_KERNELS(bf16_bf16, kernel::BFloat16, kernel::BFloat16)
RMS_NORM_KERNELS(fp16_fp16, kernel::Half, kernel::Half)
RMS_NORM_KERNELS(bf16_fp32, kernel::BFloat16, float)
RMS_NORM_KERNELS(fp16_fp32, kernel::Half, float)
RMS_NORM_KERNELS(fp32_bf16, float, kernel::BFloat16)
RMS_NORM_KERNELS(fp32_fp16, float, kernel::Half)

#define SUM_PARTS_KERNEL(name, W)                                                            \
  extern "C" __global__ void __launch_bounds__(1024, 1)                                      \
      name(const float* __restrict__ partial_dw, W* __restrict__ dw, int parts, int width) { \
    kernel::sum_parts<W>(partial_dw, dw, parts, width);                                      \
  }

SUM_PARTS_KERNEL(rms_norm_sum_fp32, float)
SUM_PARTS_KERNEL(rms_norm_sum_bf16, kernel::BFloat16)
SUM_PARTS_KERNEL(rms_norm_sum_fp16, kernel::Half)
