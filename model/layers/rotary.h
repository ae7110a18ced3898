// Rotary position embeddings (Su et al. 2021, RoFormer) in the half-split form of GPT-NeoX and Llama: the pair
// (x_i, x_{i+w/2}) of a head's first w numbers is rotated by position * frequency_i. The rest of the head stays.
#pragma once

#include <cstdint>

#include "base/aten.h"
#include "model/layers/parameter_source.h"

namespace draftsmith::model {

// Cosines and sines of positions 0..n-1, computed in fp32 like the reference's, whatever the model's dtype.
struct RotaryTable {
  at::Tensor cosine;  // [n,w/2]
  at::Tensor sine;    // [n,w/2]
  int64_t positions() const { return cosine.defined() ? cosine.size(0) : 0; }
};

// Returns the frequencies of the pairs, stretched by the scaling, fp32. [w/2]
at::Tensor rotary_frequencies(const RotaryConfig& config);

// Returns the table in the dtype and on the device of `options`.
RotaryTable rotary_table(const RotaryConfig& config, int64_t positions, const at::TensorOptions& options);

// Returns the rows of a table at positions int64 [B,T] of packed sequences, on its device: cosines and sines
// [B,T,w/2].
RotaryTable rotary_rows(const RotaryTable& table, const at::Tensor& positions);

// Returns x [B,T,h*K], with heads of `head_width` numbers, rotated by `table`'s positions 0..T-1, or by the rows picked
// for each token; with gradient. [B,T,h*K]
at::Tensor rotate_sequence(const at::Tensor& x, int64_t head_width, const RotaryTable& table);

}  // namespace draftsmith::model
