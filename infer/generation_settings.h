// Settings of a generation: the options, and the model's own where options are silent.
#pragma once

#include "infer/decode_options.h"
#include "infer/generation_models.h"
#include "infer/loop/decode_settings.h"
#include "model/files/generation_config.h"

namespace draftsmith::infer {

// Returns the model's generation settings with those that the options give in their place. Errors: UserError for
// settings that no method here supports, and for stop strings of a model without a tokenizer.
model::GenerationConfig generation_settings(const GenerationModels& models, const DecodeOptions& options);

// Returns what every method applies at every position. `generation` is what generation_settings() returned.
DecodeSettings decode_settings(const GenerationModels& models, const DecodeOptions& options,
                               const model::GenerationConfig& generation);

}  // namespace draftsmith::infer
