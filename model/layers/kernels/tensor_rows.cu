// Linear layers of 1 to 32 rows of bf16 on tensor cores, for model/layers/linear_rows.h: f(x W^T + b), up to 16 rows at
// the speed at which weights are read. x may be RMS-normed on the way, (r w x) W^T with r = 1/sqrt(mean(x^2) + eps): x
// is multiplied by w and rounded, sums by r.
//
// A block computes some outputs of all rows. Its warps share out the inputs in pieces of 32, in turns. Sums are
// of fp32: a warp adds its pieces in ascending order, then warps are added in theirs. The order depends on the number
// of inputs alone, so that a row's result does not depend on the other rows. Compiled with --fmad=false.
#include "base/kernels/numbers.cuh"
#include "base/kernels/vectors.cuh"
#include "model/layers/kernels/post_op.cuh"

namespace kernel {

constexpr int kTensorWarps = 8;                 // of a block
constexpr int kTensorSpan = 32 * kTensorWarps;  // inputs that a block multiplies at once

// Returns how many pieces of each row a warp has in flight: as many as registers hold.
__device__ constexpr int tensor_depth(int halves) {
  return halves > 2 ? 2 : 4;
}

// Inputs and weights of a layer. `up` has the weights of a second layer, whose outputs are factors, or null.
struct TensorLayer {
  const BFloat16* x;     // [rows,inputs]
  const BFloat16* norm;  // [inputs]; read if kNormed
  float epsilon;
  const BFloat16* weight;  // [outputs,inputs]
  const BFloat16* bias;    // [outputs] or null
  const BFloat16* up;
  const BFloat16* up_bias;
  int rows;
  int inputs;
  int outputs;

  __device__ int layers() const { return up == nullptr ? 1 : 2; }
};

// Adds to sums [16,8] the products of a [16,16] and b [16,8], of bf16. The 32 lanes of a warp share the matrices:
// lane 4 g + t has rows g and g + 8 of a (words 0 and 2, 1 and 3), and column g of b, inputs 2 t, 2 t + 1 and those 8
// further on; of the sums columns 2 t and 2 t + 1 of rows g (0, 1) and g + 8 (2, 3).
__device__ inline void add_tensor_products(float (&sums)[4], const Word (&a)[4], const Word (&b)[2]) {
#ifdef __CUDACC_RTC__
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  tensor_core_bf16(sums, a, b);  // tests/support/cuda_shim.h
#endif
}

// Loads weights, which no other block reads, and which no kernel writes.
__device__ inline Words load_weights(const BFloat16* from) {
#ifdef __CUDACC_RTC__
  Words to;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(to.words[0]), "=r"(to.words[1]), "=r"(to.words[2]), "=r"(to.words[3])
               : "l"(from));
  return to;
#else
  return load_words(from);
#endif
}

// Returns two numbers rounded to bf16, the first one in the lower half.
__device__ inline Word rounded_pair(float first, float second) {
#ifdef __CUDACC_RTC__
  Word pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return Rounding<BFloat16>::of(first).bits | static_cast<Word>(Rounding<BFloat16>::of(second).bits) << 16;
#endif
}

// Multiplies inputs by the norm's weights, and adds their squares.
__device__ inline float scale_inputs(Words& x, const Words& norm) {
  float numbers[8];
  float factors[8];
  float squares = 0.0f;
  Vector<BFloat16>::unpack(x, numbers);
  Vector<BFloat16>::unpack(norm, factors);
  KERNEL_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    squares = multiply_add(numbers[2 * i], numbers[2 * i], squares);
    squares = multiply_add(numbers[2 * i + 1], numbers[2 * i + 1], squares);
    x.words[i] = rounded_pair(numbers[2 * i] * factors[2 * i], numbers[2 * i + 1] * factors[2 * i + 1]);
  }
  return squares;
}

// Sums of a warp: of products, kTiles of 8 outputs by pairs of 8 rows, and of the squares of rows g, g + 8 and so on.
template <int kTiles, int kHalves>
struct TensorSums {
  float products[kTiles][(kHalves + 1) / 2][4] = {};
  float squares[kHalves] = {};
};

// There are 8 kHalves rows, of which those beyond in.rows are zeros. Lanes read 8 inputs of a row at once. Which of a
// piece's inputs they are does not matter, as long as those of x and of the weights are the same ones.
template <bool kNormed, int kTiles, int kHalves>
__device__ void add_tensor_rows(const TensorLayer& in, const BFloat16* const (&weights)[kTiles],
                                TensorSums<kTiles, kHalves>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int ahead = lane % 4 * 8;  // of this lane, in a piece
  constexpr int kDepth = tensor_depth(kHalves);
  bool waits = true;
  KERNEL_UNROLL(1)
  for (int first = static_cast<int>(threadIdx.x) / 32 * 32; first < in.inputs; first += kDepth * kTensorSpan) {
    Words read[kDepth][kTiles];
    Words x[kDepth][kHalves];
    Words norm[kDepth];
    KERNEL_UNROLL(4)
    for (int i = 0; i < kDepth; ++i) {
      const int column = first + i * kTensorSpan + ahead;
      KERNEL_UNROLL(2)
      for (int j = 0; j < kTiles; ++j) read[i][j] = column < in.inputs ? load_weights(weights[j] + column) : Words{};
    }
    if (waits) wait_for_inputs();
    waits = false;
    KERNEL_UNROLL(4)
    for (int i = 0; i < kDepth; ++i) {
      const int column = first + i * kTensorSpan + ahead;
      KERNEL_UNROLL(4)
      for (int j = 0; j < kHalves; ++j) {
        const int row = lane / 4 + 8 * j;
        const bool there = column < in.inputs && row < in.rows;
        x[i][j] = there ? load_words(in.x + static_cast<Int64>(row) * in.inputs + column) : Words{};
      }
      if constexpr (kNormed) norm[i] = column < in.inputs ? load_words(in.norm + column) : Words{};
    }
    KERNEL_UNROLL(4)
    for (int i = 0; i < kDepth; ++i) {
      if (first + i * kTensorSpan >= in.inputs) break;
      if constexpr (kNormed) {
        KERNEL_UNROLL(4)
        for (int j = 0; j < kHalves; ++j) sums.squares[j] += scale_inputs(x[i][j], norm[i]);
      }
      KERNEL_UNROLL(2)
      for (int j = 0; j < kTiles; ++j) {
        KERNEL_UNROLL(2)
        for (int k = 0; k < 4; k += 2) {
          const Word b[2] = {read[i][j].words[k], read[i][j].words[k + 1]};
          KERNEL_UNROLL(2)
          for (int l = 0; l < kHalves; l += 2) {
            const Words& upper = x[i][l + 1 < kHalves ? l + 1 : l];
            const Word a[4] = {x[i][l].words[k], kHalves > 1 ? upper.words[k] : 0, x[i][l].words[k + 1],
                               kHalves > 1 ? upper.words[k + 1] : 0};
            add_tensor_products(sums.products[j][l / 2], a, b);
          }
        }
      }
    }
  }
  if (waits) wait_for_inputs();
}

// Computes a block's part of y [rows,outputs] = f(layer(x)) + residual or, with `up`, f(layer(x)) * up(x) + residual.
// Sums are rounded once, to y. With `up`, tiles are of the one layer and of the other in turns.
template <bool kNormed, int kTiles, int kHalves>
__device__ void tensor_rows(const TensorLayer& in, const BFloat16* residual, BFloat16* y, int then) {
  __shared__ float products[kTensorWarps][8 * kHalves][8 * kTiles];
  __shared__ float squares[kTensorWarps][8 * kHalves];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int layers = in.layers();
  const int own = 8 * kTiles / layers;  // outputs of a block
  const Int64 first = static_cast<Int64>(blockIdx.x) * own;
  const BFloat16* weights[kTiles];
  KERNEL_UNROLL(2)
  for (int i = 0; i < kTiles; ++i) {
    const Int64 output = first + i / layers * 8 + lane / 4;
    const BFloat16* of = i % layers == 0 ? in.weight : in.up;
    weights[i] = of + (output < in.outputs ? output : in.outputs - 1) * in.inputs;
  }
  TensorSums<kTiles, kHalves> sums;
  add_tensor_rows<kNormed>(in, weights, sums);
  KERNEL_UNROLL(4)
  for (int j = 0; j < kHalves; ++j) {
    const int row = lane / 4 + 8 * j;
    KERNEL_UNROLL(2)
    for (int i = 0; i < kTiles; ++i) {
      products[warp][row][8 * i + lane % 4 * 2] = sums.products[i][j / 2][2 * (j % 2)];
      products[warp][row][8 * i + lane % 4 * 2 + 1] = sums.products[i][j / 2][2 * (j % 2) + 1];
    }
    if constexpr (kNormed) {
      sums.squares[j] += __shfl_xor_sync(0xffffffffu, sums.squares[j], 1);
      sums.squares[j] += __shfl_xor_sync(0xffffffffu, sums.squares[j], 2);
      if (lane % 4 == 0) squares[warp][row] = sums.squares[j];
    }
  }
  __syncthreads();

  for (int i = static_cast<int>(threadIdx.x); i < in.rows * own; i += kTensorSpan) {
    const int row = i / own;
    const Int64 output = first + i % own;
    if (output >= in.outputs) continue;
    const int column = i % own / 8 * 8 * layers + i % 8;
    const int up_column = column + (layers == 2 ? 8 : 0);
    float sum = 0.0f;
    float up = 0.0f;
    float square = 0.0f;
    KERNEL_UNROLL(8)
    for (int j = 0; j < kTensorWarps; ++j) {
      sum += products[j][row][column];
      up += products[j][row][up_column];
      if constexpr (kNormed) square += squares[j][row];
    }
    if constexpr (kNormed) {
      const float factor = 1.0f / sqrt(square / static_cast<float>(in.inputs) + in.epsilon);
      sum *= factor;
      up *= factor;
    }
    sum = activated(in.bias == nullptr ? sum : sum + widen(in.bias[output]), then);
    if (layers == 2) sum *= in.up_bias == nullptr ? up : up + widen(in.up_bias[output]);
    const Int64 place = static_cast<Int64>(row) * in.outputs + output;
    y[place] = Rounding<BFloat16>::of(residual == nullptr ? sum : sum + widen(residual[place]));
  }
}

}  // namespace kernel

// Kernels for at most `most` rows, 8, 16 or 32, and `outputs` of a block, 8 or 16. x has no __restrict__, as in
// linear_rows.cu.
#define TENSOR_ROWS_KERNEL(name, normed, most, outputs)                                                               \
  extern "C" __global__ void __launch_bounds__(kernel::kTensorSpan, 2) name##_##most##_##outputs(                     \
      const kernel::BFloat16* x, const kernel::BFloat16* __restrict__ norm, float epsilon,                            \
      const kernel::BFloat16* __restrict__ weight, const kernel::BFloat16* __restrict__ bias,                         \
      const kernel::BFloat16* __restrict__ up, const kernel::BFloat16* __restrict__ up_bias,                          \
      const kernel::BFloat16* residual, kernel::BFloat16* y, int rows, int inputs, int number_of_outputs, int then) { \
    kernel::tensor_rows<normed, outputs / 8, most / 8>(                                                               \
        {x, norm, epsilon, weight, bias, up, up_bias, rows, inputs, number_of_outputs}, residual, y, then);           \
  }

#define TENSOR_ROWS_KERNELS(most, outputs)                   \
  TENSOR_ROWS_KERNEL(linear_rows_bf16, false, most, outputs) \
  TENSOR_ROWS_KERNEL(normed_rows_bf16, true, most, outputs)

TENSOR_ROWS_KERNELS(8, 8)
TENSOR_ROWS_KERNELS(8, 16)
TENSOR_ROWS_KERNELS(16, 8)
TENSOR_ROWS_KERNELS(16, 16)
TENSOR_ROWS_KERNELS(32, 8)
TENSOR_ROWS_KERNELS(32, 16)
