// The kinds of models that decode alone: ordinary ones, block prediction and deep Tandems. Tandem secondaries and
// drafters that share an encoder read another model, and infer/drafters loads them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "model/files/model_directory.h"
#include "model/transformer/language_model.h"

namespace draftsmith::model {

struct LoadedLanguageModel {
  std::unique_ptr<LanguageModel> model;
  GenerationConfig generation;  // of its directory; of a deep Tandem its small part's
};

// Loads a model that decodes alone. Errors: UserError, those of load_model() and load_deep_tandem(); a wrong kind.
LoadedLanguageModel load_language_model(const std::filesystem::path& directory, const LoadOptions& options = {});

// Checks everything about a model directory of any kind: its weights, and another model that it names by its hash.
// Errors: UserError.
void check_model_directory(const std::filesystem::path& directory);

// Returns the transformers of such a model, the one that predicts first: the model itself, that of block prediction, or
// a deep Tandem's small and large part. None for models of tests.
std::vector<const TransformerModel*> transformers_of(const LanguageModel& model);

// Returns the numbers in all parameters, tied ones once.
int64_t count_numbers(const LanguageModel& model);

// Returns how many tokens a run of the model predicts: γ for block prediction, else 1. It is also the fewest tokens of
// a text after which the next one is predicted, since nothing predicts a first block.
int64_t tokens_at_once(const LanguageModel& model);

}  // namespace draftsmith::model
