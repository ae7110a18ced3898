// Input of stages that train: a corpus, a validation corpus, and the tokenizer of both.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "data/corpus/corpus.h"
#include "data/tokenizers/tokenizer.h"
#include "recipes/stages/stages.h"
#include "train/trainer.h"

namespace draftsmith::recipes {

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

}  // namespace draftsmith::recipes
