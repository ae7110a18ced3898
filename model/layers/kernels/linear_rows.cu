// Linear layers of few rows of fp32 and fp16, for model/layers/linear_rows.h: f(x W^T + b). x may be RMS-normed on the
// way, (r w x) W^T with r = 1/sqrt(mean(x^2) + eps): weights are multiplied by w, sums by r. Those of bf16 stand in
// tensor_rows.cu.
//
// A warp reads some rows of the weights once, 16 bytes a lane at a time, and multiplies them with all rows of x. Sums
// are of fp32: a lane adds its products in ascending order, then lanes are added as a tree. The order depends on the
// number of inputs alone, so that a row's result does not depend on the other rows. Compiled with --fmad=false.
#include "base/kernels/numbers.cuh"
#include "base/kernels/vectors.cuh"
#include "model/layers/kernels/post_op.cuh"

namespace kernel {

// Inputs of a layer, and the weights of their norm.
template <class X>
struct Input {
  const X* x;     // [rows,inputs]
  const X* norm;  // [inputs]; read if kNormed
  float epsilon;
  int rows;
  int inputs;
};

// A layer's numbers.
template <class X>
struct Layer {
  const X* weight;  // [outputs,inputs]
  const X* bias;    // [outputs] or null
};

// Rows of weights that a warp works on: more of them share a load of x, and take more registers.
template <int kRows>
constexpr int kOutputsOf = kRows <= 4 ? 2 : 4;

// Vectors of each such row that are in flight at once.
template <int kRows>
constexpr int kDepthOf = kRows <= 2   ? 4
                         : kRows <= 8 ? 2
                                      : 1;

__device__ constexpr int power_of_two_from(int number) {
  int power = 1;
  while (power < number) power *= 2;
  return power;
}

// Sums of a lane: of products, [kRows,kOutputs], and of squares of the inputs if kNormed.
template <int kRows, int kOutputs>
struct LaneSums {
  float products[power_of_two_from(kRows * kOutputs)] = {};
  float squares[power_of_two_from(kRows)] = {};
};

// Adds products of a vector of each row of weights with all rows of x, which begin at column `column`.
template <bool kNormed, int kRows, int kOutputs, class X>
__device__ void add_products(const Words (&read)[kOutputs], const Input<X>& in, int column,
                             LaneSums<kRows, kOutputs>& sums) {
  constexpr int kCount = Vector<X>::kCount;
  float weights[kOutputs][kCount];
  KERNEL_UNROLL(4)
  for (int i = 0; i < kOutputs; ++i) Vector<X>::unpack(read[i], weights[i]);
  if constexpr (kNormed) {
    float norm[kCount];
    Vector<X>::unpack(load_words(in.norm + column), norm);
    KERNEL_UNROLL(4)
    for (int i = 0; i < kOutputs; ++i) {
      KERNEL_UNROLL(16)
      for (int j = 0; j < kCount; ++j) weights[i][j] *= norm[j];
    }
  }
  KERNEL_UNROLL(16)
  for (int row = 0; row < kRows; ++row) {
    // A row too many repeats the last one.
    const int place = row < in.rows ? row : in.rows - 1;
    float numbers[kCount];
    Vector<X>::unpack(load_words(in.x + static_cast<Int64>(place) * in.inputs + column), numbers);
    KERNEL_UNROLL(16)
    for (int j = 0; j < kCount; ++j) {
      if constexpr (kNormed) sums.squares[row] = multiply_add(numbers[j], numbers[j], sums.squares[row]);
      KERNEL_UNROLL(4)
      for (int i = 0; i < kOutputs; ++i) {
        float& sum = sums.products[row * kOutputs + i];
        sum = multiply_add(weights[i][j], numbers[j], sum);
      }
    }
  }
}

// Computes this lane's share of all sums.
template <bool kNormed, int kRows, int kOutputs, class X>
__device__ void add_all_products(const X* const (&weights)[kOutputs], const Input<X>& in,
                                 LaneSums<kRows, kOutputs>& sums) {
  constexpr int kDepth = kDepthOf<kRows>;
  constexpr int kStride = 32 * Vector<X>::kCount;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int first = lane * Vector<X>::kCount; first < in.inputs; first += kDepth * kStride) {
    Words read[kDepth][kOutputs];
    KERNEL_UNROLL(4)
    for (int i = 0; i < kDepth; ++i) {
      const int column = first + i * kStride;
      KERNEL_UNROLL(4)
      for (int j = 0; j < kOutputs; ++j) read[i][j] = column < in.inputs ? load_words(weights[j] + column) : Words{};
    }
    KERNEL_UNROLL(4)
    for (int i = 0; i < kDepth; ++i) {
      const int column = first + i * kStride;
      if (column < in.inputs) add_products<kNormed, kRows, kOutputs, X>(read[i], in, column, sums);
    }
  }
}

// Adds each of kCount numbers over the lanes of a warp, pairs at distance 16 first, then 8, 4, 2 and 1. Every step
// shares out the numbers among two halves of the lanes: lane n is left with number n * kCount / 32 or, of more than 32
// numbers, with as many from there as each lane can have.
template <int kCount, int kDistance = 16>
__device__ void sum_lanes(float* numbers) {
  if constexpr (kCount > 1 && kDistance > 0) {
    const bool upper = (threadIdx.x & kDistance) != 0;
    KERNEL_UNROLL(32)
    for (int i = 0; i < kCount / 2; ++i) {
      const float kept = upper ? numbers[i + kCount / 2] : numbers[i];
      const float given = upper ? numbers[i] : numbers[i + kCount / 2];
      numbers[i] = kept + __shfl_xor_sync(0xffffffffu, given, kDistance);
    }
    sum_lanes<kCount / 2, kDistance / 2>(numbers);
  } else if constexpr (kDistance > 0) {
    numbers[0] += __shfl_xor_sync(0xffffffffu, numbers[0], kDistance);
    sum_lanes<1, kDistance / 2>(numbers);
  }
}

// Asks for a warp's rows of weights, so that they are in the second-level cache when the inputs are there.
template <int kOutputs, class X>
__device__ void ask_for_weights(const X* const (&weights)[kOutputs], int inputs) {
  constexpr int kLine = 128 / sizeof(X);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  KERNEL_UNROLL(1)
  for (int column = lane * kLine; column < inputs; column += 32 * kLine) {
    KERNEL_UNROLL(4)
    for (int i = 0; i < kOutputs; ++i) ask_for_line(weights[i] + column);
  }
}

// Computes a warp's part, number `part` from 0, of y [rows,outputs] = f(layer(x)) + residual or, if `up` has weights,
// f(layer(x)) * up(x) + residual, for at most kRows rows. Sums are rounded once, to y. With `up`, a warp's rows of
// weights are of the one layer and of the other in turns.
template <bool kNormed, int kRows, class X>
__device__ void linear_rows(const Input<X>& in, const Layer<X>& layer, const Layer<X>& up, const X* residual, X* y,
                            int outputs, int then, Int64 part) {
  constexpr int kOutputs = kOutputsOf<kRows>;
  constexpr int kNumbers = power_of_two_from(kRows * kOutputs);
  constexpr int kLeft = kNumbers > 32 ? kNumbers / 32 : 1;    // numbers of a lane after all sums
  constexpr int kShared = kNumbers < 32 ? 32 / kNumbers : 1;  // lanes with one number
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int layers = up.weight == nullptr ? 1 : 2;
  const Int64 first = part * (kOutputs / layers);
  if (first >= outputs) return wait_for_inputs();
  const X* weights[kOutputs];
  KERNEL_UNROLL(4)
  for (int i = 0; i < kOutputs; ++i) {
    const Int64 output = first + i / layers;
    const X* of = i % layers == 0 ? layer.weight : up.weight;
    weights[i] = of + (output < outputs ? output : outputs - 1) * in.inputs;
  }
  ask_for_weights(weights, in.inputs);
  wait_for_inputs();
  LaneSums<kRows, kOutputs> sums;
  add_all_products<kNormed, kRows, kOutputs, X>(weights, in, sums);
  sum_lanes<kNumbers>(sums.products);
  float factor = 1.0f;  // the norm's, of the row of this lane's numbers
  if constexpr (kNormed) {
    sum_lanes<power_of_two_from(kRows)>(sums.squares);
    factor = 1.0f / sqrt(sums.squares[0] / static_cast<float>(in.inputs) + in.epsilon);
  }

  float* numbers = sums.products;
  const auto index_of = [&](int i) { return lane / kShared * kLeft + i; };
  const auto output_of = [&](int index) { return first + index % kOutputs / layers; };
  KERNEL_UNROLL(2)
  for (int i = 0; i < kLeft; ++i) {
    const Int64 output = output_of(index_of(i));
    const bool is_up = index_of(i) % layers == 1;
    if constexpr (kNormed) numbers[i] *= factor;
    const X* bias = is_up ? up.bias : layer.bias;
    if (output < outputs && bias != nullptr) numbers[i] += widen(bias[output]);
    if (!is_up) numbers[i] = activated(numbers[i], then);
  }
  // The other factor of a product is the lane's second number, or the next lane's.
  if (layers == 2) numbers[0] *= kLeft > 1 ? numbers[kLeft - 1] : __shfl_xor_sync(0xffffffffu, numbers[0], kShared);
  KERNEL_UNROLL(2)
  for (int i = 0; i < kLeft; ++i) {
    const int index = index_of(i);
    const Int64 output = output_of(index);
    if (lane % kShared != 0 || index % layers != 0 || index / kOutputs >= in.rows || output >= outputs) continue;
    const Int64 place = static_cast<Int64>(index / kOutputs) * outputs + output;
    y[place] = Rounding<X>::of(residual == nullptr ? numbers[i] : numbers[i] + widen(residual[place]));
  }
}

// Returns the number of this warp in the grid, whose blocks have two.
__device__ inline Int64 part_of_warp() {
  return static_cast<Int64>(blockIdx.x) * 2 + threadIdx.x / 32;
}

}  // namespace kernel

// Kernels of type X for at most `most` rows. x has no __restrict__: when a kernel is launched early, the one ahead
// still writes it, so it may not be read through the cache of constants.
#define LINEAR_ROWS_KERNEL(name, X, normed, most)                                                                      \
  extern "C" __global__ void __launch_bounds__(64, 4)                                                                  \
      name(const X* x, const X* __restrict__ norm, float epsilon, const X* __restrict__ weight,                        \
           const X* __restrict__ bias, const X* __restrict__ up, const X* __restrict__ up_bias, const X* residual,     \
           X* y, int rows, int inputs, int outputs, int then) {                                                        \
    kernel::linear_rows<normed, most, X>({x, norm, epsilon, rows, inputs}, {weight, bias}, {up, up_bias}, residual, y, \
                                         outputs, then, kernel::part_of_warp());                                       \
  }

#define LINEAR_ROWS_TWO_KERNELS(suffix, X, most)                    \
  LINEAR_ROWS_KERNEL(linear_rows_##suffix##_##most, X, false, most) \
  LINEAR_ROWS_KERNEL(normed_rows_##suffix##_##most, X, true, most)

#define LINEAR_ROWS_KERNELS(suffix, X)  \
  LINEAR_ROWS_TWO_KERNELS(suffix, X, 1) \
  LINEAR_ROWS_TWO_KERNELS(suffix, X, 2) \
  LINEAR_ROWS_TWO_KERNELS(suffix, X, 4) \
  LINEAR_ROWS_TWO_KERNELS(suffix, X, 8) \
  LINEAR_ROWS_TWO_KERNELS(suffix, X, 16)

// NVRTC compiles the kernels of one type at a time.
#ifdef LINEAR_ROWS_SUFFIX
#define LINEAR_ROWS_KERNELS_OF(suffix, X) LINEAR_ROWS_KERNELS(suffix, X)
LINEAR_ROWS_KERNELS_OF(LINEAR_ROWS_SUFFIX, kernel::LINEAR_ROWS_TYPE)
#else
LINEAR_ROWS_KERNELS(fp16, kernel::Half)
LINEAR_ROWS_KERNELS(fp32, float)
#endif
