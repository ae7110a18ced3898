// The measures that a train stage leaves of its model (validation.json, train/training_log.h).
#pragma once

#include <filesystem>
#include <optional>

namespace draftsmith::recipes {

struct ValidationMeasures {
  double loss = 0;      // cross entropy per label, nats: the log perplexity
  double accuracy = 0;  // share of labels
};

// Of the model that the stage keeps; nothing for stages that validate none. Errors: UserError naming what is malformed.
std::optional<ValidationMeasures> load_validation(const std::filesystem::path& stage);

}  // namespace draftsmith::recipes
