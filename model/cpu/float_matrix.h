// A weight matrix in fp32 or bf16 for CPUs; inputs, sums and outputs are fp32. Bound by the speed at which W is read,
// and with AVX-512 in fp32 no slower than MKL for many rows (1 to 3 times as fast up to 64, 0.8 to 1.3 times from 256
// to 4096). Bf16 weights are widened in registers, which is exact: AVX512_BF16 would round the inputs too.
#pragma once

#include <memory>

#include "model/cpu/packed_weights.h"
#include "model/cpu/panel_kernels.h"

namespace draftsmith::model {

// Stored: float or at::BFloat16.
template <class Stored>
class FloatMatrix final : public PackedWeights {
 public:
  // Packs weight [out,in], stored in any float type on the CPU, and fp32 bias [out] (undefined: none). Returns null for
  // other weights.
  static std::shared_ptr<const FloatMatrix> pack(const at::Tensor& weight, const at::Tensor& bias, WeightArena& arena,
                                                 Instructions instructions = cpu_instructions());

  void run(PanelRange panels, const Rows& rows, Finish finish) const override;

 private:
  using Number = std::conditional_t<std::is_same_v<Stored, float>, float, uint16_t>;

  FloatMatrix(const at::Tensor& weight, const at::Tensor& bias, WeightArena& arena, Instructions instructions);
  // Fills the panels from rows [out,in].
  template <class T>
  void fill(const T* rows);
  // Adds the products of a panel's weights [in,64] and rows [rows,in] to their sums.
  void add_products(const Number* panel, const float* x, int64_t rows, float (*sums)[kPanel]) const;

  at::Tensor
      panels_;       // [panels,in,64]: 64 outputs side by side, bf16 by bf16_place(); the last panel padded with zeros
  at::Tensor bias_;  // fp32 [panels,64], padded likewise; undefined: none
  PanelKernels<FloatTask<Number>> kernels_;
};

using Fp32Matrix = FloatMatrix<float>;
using Bf16Matrix = FloatMatrix<at::BFloat16>;

}  // namespace draftsmith::model
