// A training run and checks of its inputs: from models and a corpus to a trained model directory, resumable at every
// step.
//
// In the run's directory:
//   checkpoints/step-000001000/   the newest training checkpoint (training_checkpoint.h); `last` links to it
//   best-000000800/, best         the best model so far, a model directory
//   model/                        the result, a model directory; appears when the run has finished
//   metrics.jsonl, tensorboard/   the log
//   validation.json               the measures of the result, where the run validates
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/logging.h"
#include "data/corpus/corpus.h"
#include "data/tokenizers/tokenizer.h"
#include "model/files/generation_config.h"
#include "train/options.h"
#include "train/trainable/trainable_model.h"
#include "train/trainer_inputs.h"
#include "train/training_checkpoint.h"
#include "train/validation.h"

namespace draftsmith::train {

// ---- Checks of a run's inputs against each other

// Refuses inputs that do not fit each other. Errors (UserError, all at once): corpora without examples or with more
// token ids than the model, a teacher of validation with fewer ids or another decoder start than the model; for
// decoder-only models sources that end in EOS and examples longer than the positions of the model or of a teacher.
void check_inputs(const TrainerInputs& inputs);

// Checks a corpus for a teacher-forced pass of a model: it has examples, and no more token ids than the model; for
// decoder-only models, prompts and lengths fit.
void check_corpus(const data::Corpus& corpus, const model::ModelInfo& info, Problems& problems);

// ---- The run

struct TrainResult {
  std::filesystem::path model;  // the result's directory
  TrainingState state;
  bool stopped_early = false;  // by validation.patience
};

class Trainer {
 public:
  // Errors (UserError): options out of range, a corpus or teacher that does not fit the model, a validation corpus
  // without labels, a best measure whose inputs are missing, parameter groups that freeze everything.
  Trainer(TrainerInputs inputs, TrainOptions options, std::filesystem::path directory);
  ~Trainer();

  // Trains from the newest checkpoint in the directory, or from the start, to the end.
  // Errors: RunError when the loss or a gradient is NaN or infinite and the options do not skip such steps (names step,
  // corpus and examples; the last checkpoint stays), or when a validation's measure is; UserError when the directory
  // holds another run; Interrupted after SIGINT or SIGTERM, with a checkpoint written, while a SignalWatch exists
  // (base/signals.h; the caller holds it).
  TrainResult run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace draftsmith::train
