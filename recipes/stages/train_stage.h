// What stages that train share: validation measures of their results, corpora with their tokenizer, and a teacher's
// stored distributions. Stages of kind `train` are in train_stage.cpp.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "data/corpus/corpus.h"
#include "data/teacher/teacher_cache.h"
#include "data/tokenizers/tokenizer.h"
#include "recipes/stage.h"
#include "recipes/stages/stages.h"
#include "train/trainer.h"

namespace draftsmith::recipes {

// Validation measures that a train stage writes (validation.json, train/training_log.h).
struct ValidationMeasures {
  double loss = 0;      // cross entropy per label, nats: the log perplexity
  double accuracy = 0;  // share of labels
};

// Returns the measures of a stage's model; nothing if the stage did not validate. Errors: a UserError with the
// malformed part.
std::optional<ValidationMeasures> load_validation(const std::filesystem::path& stage);

// ---- Inputs

// Input of stages that train: a corpus, a validation corpus, and the tokenizer of both.
struct TrainingData {
  // Opens the files. Errors: UserError for missing or damaged files, and for a corpus of another tokenizer.
  TrainingData(const std::filesystem::path& tokenizer, const std::filesystem::path& corpus,
               const std::optional<std::filesystem::path>& validation_corpus);

  // Returns a trainer's inputs, which refer to this object.
  train::TrainerInputs inputs(train::TrainableModel& trainable, const StageContext& run) const;

  std::unique_ptr<data::Tokenizer> tokenizer;
  data::Corpus corpus;
  std::optional<data::Corpus> validation;
};

// Opens and checks a teacher's stored distributions for training on `corpus`. Errors: a UserError with all problems,
// each naming both sides: another corpus, another tokenizer or, if `teacher` is given, another teacher.
data::TeacherCache open_teacher_cache(const std::filesystem::path& file, const data::Corpus& corpus,
                                      const std::optional<std::filesystem::path>& teacher);

}  // namespace draftsmith::recipes
