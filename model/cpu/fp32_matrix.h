// A weight matrix in fp32 for CPUs with AVX-512: bound by the speed at which W is read, and no slower than MKL for many
// rows (1 to 3 times as fast up to 64, 0.8 to 1.3 times from 256 to 4096).
#pragma once

#include <memory>

#include "model/cpu/packed_weights.h"
#include "model/cpu/weight_arena.h"

namespace draftsmith::model {

class Fp32Matrix final : public PackedWeights {
 public:
  // Packs weight [out,in], stored in any float type on the CPU, and fp32 bias [out] (undefined: none). Returns null if
  // the processor or the dtype does not support it.
  static std::shared_ptr<const Fp32Matrix> pack(const at::Tensor& weight, const at::Tensor& bias, WeightArena& arena);

  void run(PanelRange panels, const Rows& rows, Finish finish) const override;

 private:
  Fp32Matrix(const at::Tensor& weight, const at::Tensor& bias, WeightArena& arena);
  // Fills the panels from rows [out,in].
  template <class T>
  void fill(const T* rows);

  at::Tensor panels_;  // [panels,in,64]: 64 outputs side by side, the last panel padded with zeros
  at::Tensor bias_;    // [panels,64], padded likewise; undefined: none
};

}  // namespace draftsmith::model
