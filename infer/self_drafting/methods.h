// The methods inside the model: early-exit, calm and ppd. What they take of the options, and what is wrong with that
// for a model, said before any work.
#pragma once

#include "base/error.h"
#include "infer/decode_options.h"
#include "infer/load_models.h"
#include "infer/loop/decode_settings.h"
#include "infer/loop/rows.h"
#include "infer/self_drafting/calm.h"
#include "infer/self_drafting/ppd.h"

namespace draftsmith::infer {

// Returns the target as a transformer. check_inside() must have found no problem with the models.
model::TransformerModel& inside_model(const GenerationModels& models);

// Returns the number of layers that draft in the method early-exit: the option, else the first exit, else 1.
int64_t exit_layer_of(const DecodeOptions& options, const model::Exits* exits);

// Reports a problem at `where` if the target is no transformer or the exits belong to another model. Returns whether
// all is well.
bool check_layers(const GenerationModels& models, const std::string& where, Problems& problems);

// Reports problems of calm's and ppd's options with the models, exits that are not the target's, and exits named by the
// options that have none at the layer read. Other methods have no such problems.
void check_inside(const GenerationModels& models, const DecodeOptions& options, Problems& problems);

CalmSettings calm_settings(const DecodeOptions& options);
// Returns the settings of ppd; d-bar is the option, else the first exit from half of the layers to all but one, else
// half.
PpdSettings ppd_settings(const GenerationModels& models, const DecodeOptions& options);

// Decodes by calm or ppd.
void decode_inside(const GenerationModels& models, const DecodeOptions& options, const DecodeSettings& settings,
                   RowBatch& batch, PhaseTimer& timer);

}  // namespace draftsmith::infer
