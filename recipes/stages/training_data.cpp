#include "recipes/stages/training_data.h"

#include "data/tokenizers/tokenizer.h"
#include "recipes/stages/tokenizers.h"

namespace draftsmith::recipes {

TrainingData::TrainingData(const std::filesystem::path& tokenizer_file, const std::filesystem::path& corpus_file,
                           const std::optional<std::filesystem::path>& validation_corpus)
    : tokenizer(data::load_tokenizer(tokenizer_file)), corpus(corpus_file) {
  require_tokenizer(corpus, *tokenizer);
  if (!validation_corpus) return;
  validation.emplace(*validation_corpus);
  require_tokenizer(*validation, *tokenizer);
}

train::TrainerInputs TrainingData::inputs(train::TrainableModel& trainable, const StageContext& run) const {
  train::TrainerInputs inputs(trainable, corpus);
  inputs.validation = validation ? &*validation : nullptr;
  inputs.tokenizer = tokenizer.get();
  inputs.identity = run.identity;
  inputs.progress = run.execution.progress();
  inputs.world = run.execution.world;
  return inputs;
}

}  // namespace draftsmith::recipes
