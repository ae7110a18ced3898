// The cached keys that a step's tokens see.
#pragma once

#include "model/layers/visible_keys.h"
#include "model/transformer/decoder_state.h"

namespace draftsmith::model {

// Sets `keys` to those of the self-attention, or of the cross-attention, of a step. Both use the memory that `keys`
// has.
void self_keys(const StepLayout& layout, const DecoderState& state, VisibleKeys& keys);
void cross_keys(const StepLayout& layout, const DecoderState& state, VisibleKeys& keys);

}  // namespace draftsmith::model
