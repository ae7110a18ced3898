// The drafter `early-exit`: the target's own first layers, read by an exit.
#pragma once

#include <cstdint>
#include <string>

#include "infer/drafters/drafter.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::infer {

// Makes the drafter of the target's first `layers` layers, >= 1.
SharedDrafter exit_drafter(int64_t layers);

// Returns the target as a transformer, whose layers can be read; nullptr after a problem is reported at `where`.
model::TransformerModel* transformer_of(model::LanguageModel& target, const std::string& where, Problems& problems);

}  // namespace draftsmith::infer
