// A weight matrix in int8 for CPUs, a quarter of fp32's memory: W[o,i] = scale[o] w[o,i], w from -127 to 127.
//
// Inputs are rounded to int8 too, with one scale for each group of 128 inputs of a row. Products of a group are added
// as integers, exactly; groups are added in order, in fp32. So results depend neither on other rows nor on the number
// of threads, nor on the processor's instructions. AMX is the fastest, AVX-512 VNNI and AVX2 come next. NaN and
// infinity among the inputs of a group make the row's outputs NaN.
#pragma once

#include <memory>

#include "model/cpu/int8_amx.h"
#include "model/cpu/packed_weights.h"
#include "model/cpu/panel_kernels.h"

namespace draftsmith::model {

// Inputs of one scale.
inline constexpr int64_t kInt8Group = 128;

struct QuantizedRows;  // int8_matrix.cpp

class Int8Matrix final : public PackedWeights {
 public:
  // Packs weight [out,in], stored in any float type on the CPU, and fp32 bias [out] (undefined: none). Errors: RunError
  // for weights that are not finite. Returns null for weights that are on another device, empty or no floats.
  static std::shared_ptr<const Int8Matrix> pack(const at::Tensor& weight, const at::Tensor& bias, WeightArena& arena,
                                                Instructions instructions = cpu_instructions());

  void run(PanelRange panels, const Rows& rows, Finish finish) const override;

 private:
  struct RowRange {
    int64_t begin = 0;
    int64_t count = 0;
  };

  Int8Matrix(const at::Tensor& weight, const at::Tensor& bias, WeightArena& arena, Instructions instructions);
  // Adds the products of all whole groups.
  void add_by_tiles(int64_t panel, const QuantizedRows& in, RowRange rows, Int8Tiles& tiles,
                    float (*sums)[kPanel]) const;
  void add_group(int64_t panel, int64_t group, const QuantizedRows& in, RowRange rows, float (*sums)[kPanel]) const;
  const uint8_t* weights_of(int64_t panel) const;

  at::Tensor panels_;  // uint8 [panels,in/4,64,4]: w + 128 of four inputs of each of 64 outputs; 128 behind the ends
  at::Tensor scales_;  // fp32 [panels,64]
  at::Tensor bias_;    // fp32 [panels,64]; undefined: none
  PanelKernels<Int8Task> kernels_;
  bool tiles_ = false;
};

}  // namespace draftsmith::model
