// What stages that train share: validation measures of their results, the option `continue_from`, corpora with their
// tokenizer, and a teacher's stored distributions. Stages of kind `train` are in train_stage.cpp.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "data/corpus/corpus.h"
#include "data/teacher/teacher_cache.h"
#include "data/tokenizers/tokenizer.h"
#include "recipes/stage.h"
#include "recipes/stages/stages.h"
#include "train/trainer.h"
#include "train/trainer_inputs.h"

namespace draftsmith::recipes {

// Validation measures that a train stage writes (validation.json, train/training_log.h).
struct ValidationMeasures {
  double loss = 0;      // cross entropy per label, nats: the log perplexity
  double accuracy = 0;  // share of labels
};

// Returns the measures of a stage's model; nothing if the stage did not validate. Errors: a UserError with the
// malformed part.
std::optional<ValidationMeasures> load_validation(const std::filesystem::path& stage);

// ---- Option `continue_from`
// Which of a stage's inputs a stage that continues it must share.

// Help text of the option.
extern const char* const kContinueFromHelp;

// Sets what `inputs` say about the stage's options but `training` and `continue_from`: inputs are named by their
// hashes. `of_validation`: options that validation alone reads. Outside of recipes, inputs are not known.
void describe_inputs(train::TrainerInputs& inputs, const StageContext& run, const std::set<std::string>& of_validation);

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
