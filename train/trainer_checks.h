// Whether a training run's inputs fit each other.
#pragma once

#include "train/trainer_inputs.h"

namespace draftsmith::train {

// Errors (UserError, all at once): corpora without examples or with more token ids than the model, a teacher for alpha
// with fewer ids or another decoder start than the model; for decoder-only models sources that end in EOS and examples
// longer than the positions of the model or of a teacher.
void check_inputs(const TrainerInputs& inputs);

// What a teacher-forced pass of a model over a corpus needs: examples, no more token ids than the model has; of
// decoder-only models prompts and lengths that fit.
void check_corpus(const data::Corpus& corpus, const model::ModelInfo& info, Problems& problems);

}  // namespace draftsmith::train
