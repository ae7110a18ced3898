// Products of one panel of weights and a few rows of inputs, for each type of weights and set of instructions. A row's
// sums are the same, to the bit, in every kernel of a set, whatever the number of rows; int8 sums in all sets, fp32
// and bf16 sums in all sets with fused multiply-add.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "model/cpu/instructions.h"
#include "model/cpu/packed_weights.h"

namespace draftsmith::model {

// Inputs whose int8 weights lie together.
inline constexpr int64_t kInt8Step = 4;

// Rows at a time: 24 sums, 4 weights and a factor fill the 32 registers of AVX-512.
inline constexpr int64_t kPanelRows = 6;

// Computes sums[row][o] = bias[o] + sum_i x[row,i] W[o,i], in the order of i. Stored: float, or uint16_t for bf16.
template <class Stored>
struct FloatTask {
  const Stored* weights;  // [in,64]; bf16 in the order of bf16_place()
  const float* bias;      // [64], or null
  const float* x;         // [rows,in]
  int64_t inputs;
  float (*sums)[kPanel];  // [rows,64]
};

// Returns the place of an output among the 64 of an input in bf16: two outputs 16 apart lie in one word, so that a
// shift and a mask widen them.
constexpr int64_t bf16_place(int64_t output) {
  return output / 32 * 32 + output % 16 * 2 + output % 32 / 16;
}

// Computes sums[row][o] += scale[row] sum_i x[row,i] (w[o,i] - 128) for one group of inputs.
struct Int8Task {
  const uint8_t* weights;  // [steps,64,4], w
  int64_t steps;
  const int8_t* x;         // [rows,width], from the group's first input
  int64_t width;           // bytes between rows
  const float* scales;     // of row r at [r * groups]
  const int32_t* offsets;  // likewise: -128 sum_i x[row,i]
  int64_t groups;
  float (*sums)[kPanel];  // [rows,64]
};

// The kernels for 1 to kPanelRows rows.
template <class Task>
using PanelKernels = std::array<void (*)(const Task&), kPanelRows>;

// Returns the kernels of a set of instructions that the processor has; of int8, of a smaller one without byte products.
template <class Stored>
PanelKernels<FloatTask<Stored>> float_kernels(Instructions instructions);
PanelKernels<Int8Task> int8_kernels(Instructions instructions);

// What is done to sums, and where the outputs go.
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

// Writes the outputs of some panels: calls sum(panel, row, count, sums) for up to kPanelRows rows at a time. `outputs`
// are those of the first panel and row of a matrix of `stride` outputs; `valid` is not read.
template <class Sum>
void run_panels(PanelRange panels, int64_t rows, const PanelOutputs& outputs, const Sum& sum) {
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const int64_t first = panel * kPanel;
    for (int64_t row = 0; row < rows; row += kPanelRows) {
      const int64_t count = std::min(kPanelRows, rows - row);
      alignas(64) float sums[kPanelRows][kPanel];
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
