// Products of one panel of weights and a few rows of inputs, for each type of weights and set of instructions. A row's
// sums are the same, to the bit, in every kernel of a set, whatever the number of rows; int8 sums in all sets, fp32
// and bf16 sums in all sets with fused multiply-add.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "model/cpu/instructions.h"

namespace draftsmith::model {

// Outputs whose weights lie side by side: four vectors of 16 floats.
inline constexpr int64_t kPanel = 64;

// Panels of outputs.
struct PanelRange {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive
};

// Inputs whose int8 weights lie together.
inline constexpr int64_t kInt8Step = 4;
// Inputs of int8 that share a scale.
inline constexpr int64_t kInt8Group = 128;

// Rows at a time: 24 sums, 4 weights and a factor fill the 32 registers of AVX-512.
inline constexpr int64_t kPanelRows = 6;
// Passes over weights, of up to kPanelRows rows each, that share the weights of a chunk while a cache holds them.
inline constexpr int64_t kPasses = 4;

// Computes sums[row][o] += sum_i x[row,i] W[o,i] over the inputs of a chunk, in the order of i. Stored: float, or
// uint16_t for bf16.
template <class Stored>
struct FloatTask {
  const Stored* weights;  // [in,64]; bf16 in the order of bf16_place()
  const Stored* ahead;    // weights that this pass asks for
  const float* x;         // [rows,width], from the chunk's first input
  int64_t width;          // numbers between rows
  int64_t inputs;
  float (*sums)[kPanel];  // [rows,64]
};

// Returns the place of an output among the 64 of an input in bf16: two outputs 16 apart lie in one word, so that a
// shift and a mask widen them.
constexpr int64_t bf16_place(int64_t output) {
  return output / 32 * 32 + output % 16 * 2 + output % 32 / 16;
}

// Computes sums[row][o] += scale[row] sum_i x[row,i] (w[o,i] - 128) for one group of inputs (Int8Tiles: for several).
struct Int8Task {
  const uint8_t* weights;  // [steps,64,4], w
  const uint8_t* ahead;    // weights that this pass asks for
  int64_t steps;
  const int8_t* x;         // [rows,width], from the group's first input; or in words (Int8Kernels)
  int64_t width;           // bytes between rows
  const float* scales;     // of row r at [r * groups]
  const int32_t* offsets;  // likewise: -128 sum_i x[row,i]
  int64_t groups;
  float (*sums)[kPanel];  // [rows,64]
};

// The kernels for 1 to kPanelRows rows, of 1, 2 and more passes. A pass asks for its share of the next chunk's weights
// in all of its tiles, so that memory is read while all of them compute.
template <class Task>
struct PanelKernels {
  using Rows = std::array<void (*)(const Task&), kPanelRows>;
  std::array<Rows, 3> by_passes;

  void operator()(int64_t passes, int64_t rows, const Task& task) const {
    by_passes[static_cast<size_t>(std::min<int64_t>(passes, 3) - 1)][static_cast<size_t>(rows - 1)](task);
  }
};

// A group's inputs are bytes in order (1 part), or kInt8Group bytes of 16-bit words of the even ones and as many of the
// odd ones (2 parts). Products of bytes, for which AVX2 wants one factor without sign, would move signs to the inputs.
struct Int8Kernels : PanelKernels<Int8Task> {
  int64_t parts = 1;
};

// Bytes ahead of the weights in use that a kernel asks for which reads them once: what reads fastest from memory.
inline constexpr int64_t kAhead = 1 << 10;

// Rows of inputs in passes of about as many each.
struct RowPasses {
  explicit RowPasses(int64_t rows)
      : all(rows), count((rows + kPanelRows - 1) / kPanelRows), each((rows + count - 1) / count) {}
  // Returns the number of rows of a pass, which begin at pass * each.
  int64_t rows(int64_t pass) const { return std::min(each, all - pass * each); }
  // Returns the weights that a pass asks for while it computes with a chunk of so many: its share of the next chunk.
  template <class Weight>
  const Weight* ahead(const Weight* chunk, int64_t size, int64_t pass) const {
    return chunk + size + pass * size / (count <= 2 ? count : 4);
  }

  int64_t all;
  int64_t count;  // up to kPasses
  int64_t each;
};

// Returns the kernels of a set of instructions that the processor has; of int8, of a smaller one without byte products.
template <class Stored>
PanelKernels<FloatTask<Stored>> float_kernels(Instructions instructions);
Int8Kernels int8_kernels(Instructions instructions);

// The calling thread's tiles of AMX, while this object lives: no other code of the thread may use AMX meanwhile. Sums
// of integers are exact, so they equal those of the other kernels to the bit.
class Int8Tiles {
 public:
  static constexpr int64_t kRows = 16;  // of a tile

  Int8Tiles() = default;
  ~Int8Tiles();
  Int8Tiles(const Int8Tiles&) = delete;
  Int8Tiles& operator=(const Int8Tiles&) = delete;
  // Adds the products of 1 to kRows rows and the steps of whole groups, of which rows have a scale and an offset each.
  // The processor must have Instructions::kAmx. A group's bytes behind the weights are asked for, not read.
  void multiply(int64_t rows, const Int8Task& task);

 private:
  void fit(int64_t rows);

  int64_t rows_ = 0;  // that the tiles have; 0: none yet
};

// Operations on sums, and the place of the outputs.
struct PanelOutputs {
  const float* scales;    // [64], factors of the sums; or null
  const float* bias;      // [64], added with the scales; or null
  const float* residual;  // like out, or null
  float* out;             // [rows,valid] of `stride` floats a row
  int64_t stride;
  int64_t valid;  // outputs of the panel that exist
  bool relu;      // keeps NaN
};

// Writes the outputs of a panel for some rows.
void finish_panel(int64_t rows, const float (*sums)[kPanel], const PanelOutputs& to);

// Writes the outputs of some panels: calls sum(panel, row, count, sums) for all rows of up to kPasses passes. `outputs`
// are those of the first panel and row of a matrix of `stride` outputs; `valid` is not read.
template <class Sum>
void run_panels(PanelRange panels, int64_t rows, const PanelOutputs& outputs, const Sum& sum) {
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const int64_t first = panel * kPanel;
    for (int64_t row = 0; row < rows; row += kPasses * kPanelRows) {
      const int64_t count = std::min(kPasses * kPanelRows, rows - row);
      alignas(64) float sums[kPasses * kPanelRows][kPanel];
      sum(panel, row, count, sums);
      const int64_t offset = row * outputs.stride + first;
      finish_panel(count, sums,
                   {outputs.scales == nullptr ? nullptr : outputs.scales + first,
                    outputs.bias == nullptr ? nullptr : outputs.bias + first,
                    outputs.residual == nullptr ? nullptr : outputs.residual + offset, outputs.out + offset,
                    outputs.stride, std::min(kPanel, outputs.stride - first), outputs.relu});
    }
  }
}

}  // namespace draftsmith::model
