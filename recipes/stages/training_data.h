// What stages that train read: a corpus, one to validate on, and the tokenizer of both.
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
  // Errors: UserError for files that are missing or damaged, and for a corpus of another tokenizer.
  TrainingData(const std::filesystem::path& tokenizer, const std::filesystem::path& corpus,
               const std::optional<std::filesystem::path>& validation_corpus);

  // A trainer's inputs over these, which must outlive it.
  train::TrainerInputs inputs(train::TrainableModel& trainable, const StageContext& run) const;

  std::unique_ptr<data::Tokenizer> tokenizer;
  data::Corpus corpus;
  std::optional<data::Corpus> validation;
};

}  // namespace draftsmith::recipes
