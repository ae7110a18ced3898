// The place of a decoding step's tokens in the K/V caches.
#pragma once

#include <cstdint>
#include <vector>

namespace draftsmith::model {

struct LayerRange {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive
};

// Positions and cache slots of the L tokens of a step, and whether they see each other.
// Made by DecoderState::append or ::siblings, then shared by all layers of the step.
struct StepLayout {
  int64_t tokens = 0;               // L
  std::vector<int64_t> base;        // [B] first slot of each row
  std::vector<int64_t> new_tokens;  // [B]
  bool siblings = false;            // the L tokens are alternatives for one position, blind to each other
};

}  // namespace draftsmith::model
