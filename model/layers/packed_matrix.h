// A weight matrix laid out for decoding on CPUs with AVX-512: y = x W^T + b for the few rows x of a step, bound by the
// speed at which W is read, and no slower than MKL for many rows (1 to 3 times as fast up to 64, 0.8 to 1.3 times from
// 256 to 4096). Each row's sums are taken in one order whatever the number of rows, so that a token's
// logits do not depend, to the last bit, on the tokens and rows that are processed with it.
#pragma once

#include <cstdint>
#include <optional>

#include "base/aten.h"
#include "model/layers/weight_arena.h"

namespace draftsmith::model {

// Returns uninitialised outputs [...,outputs] of a linear layer for inputs x [...,in].
at::Tensor output_like(const at::Tensor& x, int64_t outputs);

class PackedMatrix {
 public:
  // Operation on the sums before they are stored.
  enum class Finish { kNone, kRelu };

  // Packs weight [out,in], stored in any float type on the CPU, and fp32 bias [out] (undefined: none). Returns nothing
  // if the processor or the dtype does not support it.
  static std::optional<PackedMatrix> pack(const at::Tensor& weight, const at::Tensor& bias, WeightArena& arena);
  // Returns x W^T + b with the finish applied: x [...,in], fp32 -> [...,out].
  at::Tensor multiply(const at::Tensor& x, Finish finish) const;
  // Returns residual [...,out] + x W^T + b.
  at::Tensor add_to(const at::Tensor& residual, const at::Tensor& x) const;

 private:
  PackedMatrix() = default;
  // Fills the panels from rows [out,in].
  template <class T>
  void fill(const T* rows);
  void run(const float* x, const float* residual, Finish finish, const at::Tensor& y) const;

  at::Tensor panels_;  // [panels,in,64]: 64 outputs side by side, the last panel padded with zeros
  at::Tensor bias_;    // [panels,64], padded likewise; undefined: none
  int64_t outputs_ = 0;
  int64_t inputs_ = 0;
};

}  // namespace draftsmith::model
