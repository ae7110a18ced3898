// Key of one dropout mask.
#pragma once

#include <cstdint>

namespace draftsmith {

// Key of one mask in a training run: the micro-batch and the place in the model. Masks of different keys are
// independent.
struct DropoutKey {
  uint64_t seed = 0;
  uint64_t step = 0;  // micro-batch counter
  uint32_t site = 0;  // running number of the dropout within the forward pass
};

}  // namespace draftsmith
