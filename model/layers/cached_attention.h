// Attention of a step's new tokens over K/V caches: a kernel on CPUs in fp32, which reads ragged caches in place, one
// operator for short steps on other devices, and tensor operations for everything else: other types on CPUs, long steps
// on other devices, and soft caps and windows that cut there.
#pragma once

#include <optional>

#include "model/layers/dense_attention.h"

namespace draftsmith::model {

// Longer steps (prompts) are matrix products: in fp32 on CPUs in blocks (model/cpu/block_attention.h), else by ATen.
constexpr int64_t kLongestKernelStep = 32;

// View of the queries of a step on one kind of cache, shared by all layers.
class StepVisibility {
 public:
  StepVisibility() = default;
  // `slots` on devices other than the CPU; undefined on it. `recorded`: rows and lengths change later
  // (StepLayout::recorded), so all slots are read and nothing rests on `keys`.
  StepVisibility(VisibleKeys keys, VisibleSlots slots, bool recorded)
      : keys_(std::move(keys)), slots_(std::move(slots)), recorded_(recorded) {}

  const VisibleKeys& keys() const { return keys_; }
  const VisibleSlots& slots(int64_t tokens);
  // Returns the number of slots to read of caches of `present` slots.
  int64_t used(int64_t tokens, int64_t present) const;
  // Returns the mask, one of layers with windows and one of the others. It is made anew when a layer has another table
  // of bias than the one before.
  const ScoreMask& mask(const CachedAttentionInput& input, int64_t used);
  // Returns whether the batch is known to have all rows of the caches, in their order.
  bool in_order(int64_t cache_rows) const;

 private:
  VisibleKeys keys_;
  VisibleSlots slots_;
  bool recorded_ = false;
  std::optional<ScoreMask> masks_[2];
  at::Tensor masked_tables_[2];  // the biases in them
};

// Returns the context [B,L,H*K]; zeros for a query that sees no key.
at::Tensor cached_attention(const CachedAttentionInput& input, StepVisibility& visible);

}  // namespace draftsmith::model
