// A training run and checks of its inputs: from models and a corpus to a model directory, resumable at every step.
//
// In the run's directory, beside what train/run_directory.h says:
//   best-000000800/, best         the best model so far, a model directory
//   model/                        the result, a model directory; appears when the run has finished
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/logging.h"
#include "data/corpus/corpus.h"
#include "distributed/process_group.h"
#include "model/files/generation_config.h"
#include "train/options.h"
#include "train/run_directory.h"
#include "train/teacher/teacher_source.h"
#include "train/trainable/trainable_model.h"
#include "train/validation.h"

namespace draftsmith::train {

// Inputs of a run. All pointers and references must outlive it.
struct TrainerInputs {
  TrainableModel& trainable;  // holds the result afterwards
  const data::Corpus& corpus;
  ValidationInputs validation = {};    // its tokenizer is copied into model directories, too
  TeacherSource* distilled = nullptr;  // for distill; none: the teacher that the trained models run anyway
  std::optional<model::GenerationConfig> generation = {};  // written beside the models
  std::string identity = {};  // hash of inputs and options; a run of another identity is not resumed
  ProgressStyle progress = ProgressStyle::kQuiet;
  ProcessGroup* world = &ProcessGroup::single();  // processes that share the run; the leader alone writes
};

struct TrainResult {
  std::filesystem::path model;  // the result's directory; in memory the leader alone has the best weights
  TrainingState state;
};

// Trains from the newest checkpoint in the directory, or from the start, to the end.
// Errors: UserError, before anything is written, for options out of range, corpora and teachers that do not fit the
// model, a validation that cannot be, groups that freeze everything, and a directory that holds another run; RunError
// when a loss, a gradient or a validation's measure is NaN or infinite (the last checkpoint stays); Interrupted after
// SIGINT or SIGTERM, with a checkpoint written, while a SignalWatch exists (base/signals.h; the caller holds it).
TrainResult run_training(TrainerInputs inputs, TrainOptions options, std::filesystem::path directory);

// Checks a corpus for a teacher-forced pass of a model: it has examples, no more token ids than the model, a form that
// the model reads (data::check_form()), and lengths that fit.
void check_corpus(const data::Corpus& corpus, const model::ModelInfo& info, Problems& problems);

}  // namespace draftsmith::train
