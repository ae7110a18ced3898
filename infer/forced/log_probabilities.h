// Log-probabilities of given outputs.
#pragma once

#include <vector>

#include "infer/forced/teacher_forcing.h"

namespace draftsmith::infer {

// Returns the log-probability that the model gives each token of each output: at temperature 1 over all ids, before
// logits processors and truncation. Rows are as `texts.outputs`.
std::vector<std::vector<double>> log_probabilities(model::LanguageModel& model, const ForcedBatch& texts);

}  // namespace draftsmith::infer
