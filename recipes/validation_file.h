// Validation measures that a train stage writes (validation.json, train/training_log.h).
#pragma once

#include <filesystem>
#include <optional>

namespace draftsmith::recipes {

struct ValidationMeasures {
  double loss = 0;      // cross entropy per label, nats: the log perplexity
  double accuracy = 0;  // share of labels
};

// Returns the measures of a stage's model; nothing if the stage did not validate. Errors: a UserError with the
// malformed part.
std::optional<ValidationMeasures> load_validation(const std::filesystem::path& stage);

}  // namespace draftsmith::recipes
