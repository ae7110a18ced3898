// Linear layers of few rows, for model/layers/linear_rows.h; what they compute is in linear_rows.cuh. Compiled with
// --fmad=false.
#include "model/layers/kernels/linear_rows.cuh"

namespace kernel {

// Returns the number of this warp in the grid, whose blocks have two.
__device__ inline Int64 part_of_warp() {
  return static_cast<Int64>(blockIdx.x) * 2 + threadIdx.x / 32;
}

}  // namespace kernel

// Kernels of x of type X and weights of type W, for at most `most` rows.
#define LINEAR_ROWS_KERNEL(name, X, W, normed, most)                                                             \
  extern "C" __global__ void __launch_bounds__(64, 4)                                                            \
      name(const X* __restrict__ x, const X* __restrict__ norm, float epsilon, const W* __restrict__ weight,     \
           const X* __restrict__ bias, const float* __restrict__ scale, const W* __restrict__ up,                \
           const X* __restrict__ up_bias, const float* __restrict__ up_scale, const X* residual, X* y, int rows, \
           int inputs, int outputs, int then) {                                                                  \
    kernel::linear_rows<normed, most, X, W>({x, norm, epsilon, rows, inputs}, {weight, bias, scale},             \
                                            {up, up_bias, up_scale}, residual, y, outputs, then,                 \
                                            kernel::part_of_warp());                                             \
  }

#define LINEAR_ROWS_TWO_KERNELS(suffix, X, W, most)                    \
  LINEAR_ROWS_KERNEL(linear_rows_##suffix##_##most, X, W, false, most) \
  LINEAR_ROWS_KERNEL(normed_rows_##suffix##_##most, X, W, true, most)

#define LINEAR_ROWS_KERNELS(suffix, X, W)  \
  LINEAR_ROWS_TWO_KERNELS(suffix, X, W, 1) \
  LINEAR_ROWS_TWO_KERNELS(suffix, X, W, 2) \
  LINEAR_ROWS_TWO_KERNELS(suffix, X, W, 4) \
  LINEAR_ROWS_TWO_KERNELS(suffix, X, W, 8) \
  LINEAR_ROWS_TWO_KERNELS(suffix, X, W, 16)

// A GPU compiles one pair of types at a time.
#ifdef LINEAR_ROWS_PAIR
#define LINEAR_ROWS_PAIR_KERNELS(suffix, X, W) LINEAR_ROWS_KERNELS(suffix, X, W)
LINEAR_ROWS_PAIR_KERNELS(LINEAR_ROWS_PAIR, kernel::LINEAR_ROWS_X, kernel::LINEAR_ROWS_W)
#else
LINEAR_ROWS_KERNELS(bf16_bf16, kernel::BFloat16, kernel::BFloat16)
LINEAR_ROWS_KERNELS(fp16_fp16, kernel::Half, kernel::Half)
LINEAR_ROWS_KERNELS(fp32_fp32, float, float)
LINEAR_ROWS_KERNELS(bf16_int8, kernel::BFloat16, kernel::Int8)
LINEAR_ROWS_KERNELS(fp16_int8, kernel::Half, kernel::Int8)
LINEAR_ROWS_KERNELS(fp32_int8, float, kernel::Int8)
#endif
