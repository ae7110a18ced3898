// Beam search with the target alone: the method `beam`. Its outputs and their scores are those of Transformers'
// num_beams, length_penalty and early_stopping.
#pragma once

#include "infer/beam/hypotheses.h"
#include "infer/decode_options.h"
#include "infer/loop/decode_settings.h"
#include "infer/loop/row_batch.h"
#include "model/files/generation_config.h"

namespace draftsmith::infer {

// Returns the settings of method beam: those of the options, and the model's own where options are silent; beams are 4
// where neither says more than 1. Errors: UserError if more outputs are wanted than there are beams.
BeamSettings beam_settings(const DecodeOptions& options, const model::GenerationConfig& generation);

// Decodes every source of the batch to its end. batch.rows are `beams` equal rows for each source, and the first one's
// output is the index of the source's first result. batch.finished becomes `outputs` rows for each source, best first,
// with scores; the first of them has the counts. A source leaves the batch as soon as its search ends.
void decode_beams(model::LanguageModel& target, const BeamSettings& beams, const DecodeSettings& settings,
                  RowBatch& batch, PhaseTimer& timer);

}  // namespace draftsmith::infer
