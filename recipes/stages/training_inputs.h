// Inputs of stages that train: corpora with their tokenizer, and a teacher's stored distributions.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "data/corpus/corpus.h"
#include "data/teacher/teacher_cache.h"
#include "data/tokenizers/tokenizer.h"
#include "recipes/stage.h"
#include "train/trainer.h"

namespace draftsmith::recipes {

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
