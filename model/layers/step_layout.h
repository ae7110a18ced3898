// The place of a decoding step's tokens in the K/V caches.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aten.h"

namespace draftsmith::model {

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

}  // namespace draftsmith::model
