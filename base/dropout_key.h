// The name of one dropout mask.
#pragma once

#include <cstdint>

namespace draftsmith {

// Names one mask of a run: the micro-batch and the place in the model that draws it. Masks of different keys are
// independent.
struct DropoutKey {
  uint64_t seed = 0;
  uint64_t step = 0;  // micro-batch counter
  uint32_t site = 0;  // running number of the dropout within the forward pass
};

}  // namespace draftsmith
