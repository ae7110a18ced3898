// Checks of a training run's inputs against each other.
#pragma once

#include "train/trainer_inputs.h"

namespace draftsmith::train {

// Refuses inputs that do not fit each other. Errors (UserError, all at once): corpora without examples or with more
// token ids than the model, a teacher of validation with fewer ids or another decoder start than the model; for
// decoder-only models sources that end in EOS and examples longer than the positions of the model or of a teacher.
void check_inputs(const TrainerInputs& inputs);

// Checks a corpus for a teacher-forced pass of a model: it has examples, and no more token ids than the model; for
// decoder-only models, prompts and lengths fit.
void check_corpus(const data::Corpus& corpus, const model::ModelInfo& info, Problems& problems);

}  // namespace draftsmith::train
