// A cached step's attention, writes to K/V caches and rotations on devices other than the CPU, one launch each, and
// where the step's tokens lie in the caches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aten.h"
#include "base/kernel_texts.h"
#include "model/layers/dense_attention.h"
#include "model/layers/rotary.h"

namespace draftsmith::model {

// Positions of a step's tokens.
struct StepPositions {
  const std::vector<int64_t>& on_host;  // [B*L], clamped to the table; read on CPUs only
  at::Tensor on_device;                 // int64 [B,L] inside the table; undefined on CPUs
};

// Returns a step's x [B,L,h*K], each token rotated by its position; without gradient. Works in place where it can, on
// devices other than the CPU always: x is a temporary of the step. [B,L,h*K]
at::Tensor rotate_step(const at::Tensor& x, int64_t head_width, const RotaryTable& table,
                       const StepPositions& positions);

struct LayerRange {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive
};

// Places of a step's tokens as tensors on a device other than the CPU, so that no layer copies them there again.
// Undefined on CPUs. Tokens beyond a row's new ones have a spare slot, and a position inside the tables.
struct StepPlaces {
  at::Tensor slot;           // int64 [B,L]
  at::Tensor position;       // int64 [B,L]
  at::Tensor prefix;         // int64 [B,L] a token sees the slots [0,prefix)
  at::Tensor row;            // int64 [B] rows of the caches
  at::Tensor source_length;  // int64 [B,L] a token sees the keys [0,source_length) of its source; undefined: no sources
  at::Tensor source_row;     // int64 [B] rows of the sources' caches
  at::Tensor last;           // int64 [B] index of a row's last new token among the L, 0 without one
};

// Positions and cache slots of the L tokens of a step, and whether they see each other.
// Made by DecoderState::append or ::siblings, then shared by all layers of the step.
struct StepLayout {
  int64_t tokens = 0;               // L
  std::vector<int64_t> base;        // [B] first slot of each row
  std::vector<int64_t> new_tokens;  // [B]
  bool siblings = false;            // the L tokens are alternatives for one position, blind to each other
  StepPlaces places;
  bool recorded = false;  // places change between replays of recorded work, so nothing may rest on base
};

// ---- Copies of K/V into cache slots
// A step's, and those of other rows.

// Writes row b of from [B,L,H*K] to row rows[b] of cache [R,H,T,K], at slots base[b] + j for j < new_tokens[b], on the
// CPU. (Other devices: write_at() below.)
void write_slots(const at::Tensor& cache, const std::vector<int64_t>& rows, const at::Tensor& from,
                 const StepLayout& layout);

// ---- Places as one tensor
// StepPlaces packed in one int64 tensor of 4 B L + 3 B numbers: slot, position, prefix and source length of each token,
// then cache row, source row and last new token of each row. Where lengths lie on the device it computes them, so that
// recorded work runs step after step without the host.

// A row's part in a step.
struct PlacedRow {
  int64_t base = 0;        // tokens that its caches hold
  int64_t new_tokens = 0;  // 0..L
  int64_t cache_row = 0;
  int64_t source_row = 0;
  int64_t source_length = 0;
};

// Writes the packed places of a step of L tokens a row. Siblings all have the next position. What is written for tokens
// beyond a row's new ones goes to the slot `spare`.
void write_places(std::span<const PlacedRow> rows, int64_t tokens, bool siblings, int64_t spare, int64_t* packed);

// Returns the packed places of a step on the device of its arguments, in one launch: base and new_tokens int64 [B];
// rows int64 [3,B], the cache row, source row and source length of each.
at::Tensor step_places(const at::Tensor& base, const at::Tensor& new_tokens, const at::Tensor& rows, int64_t tokens,
                       int64_t spare);

// Returns whether step_places() works on a device: on a GPU that kernels can run on, and on CPUs.
bool has_step_places(at::Device device);

// ---- Operators of a layer
// Own kernels (model/layers/kernels/step.cu) take fp32, bf16 and fp16 and heads of up to 256 numbers.

// Returns the context [B,L,H*K] of a step over the first `used` slots; zeros for a query that sees no key.
at::Tensor attend(const CachedAttentionInput& input, const VisibleSlots& slots, int64_t used);

// Writes keys and values [B,L,kv*K] of a step to caches [R,kv,T,K]: token (b, j) to slot[b,j] of row[b].
void write_at(const at::Tensor& key_cache, const at::Tensor& value_cache, const at::Tensor& key,
              const at::Tensor& value, const at::Tensor& row, const at::Tensor& slot);

// Rotates x [B,L,h*K], heads of `head_width` numbers, in place by the table's rows `position` int64 [B,L]
// (model/layers/rotary.h). cosine, sine [n,w/2].
void rotate_at(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, const at::Tensor& position,
               int64_t head_width);

// Return the sources of the kernels of fp32, bf16 or fp16, and of step_places().
KernelSource step_source(at::ScalarType type);
KernelSource step_places_source();

}  // namespace draftsmith::model
