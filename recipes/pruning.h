// Pruning of a model directory: what `draftsmith prune` and the recipe stage `prune` both do.
#pragma once

#include <filesystem>

#include "base/options.h"
#include "model/pruning.h"

namespace draftsmith::recipes {

// What a directory was cut down to.
struct PruneReport {
  model::TransformerConfig before;
  model::TransformerConfig after;
  int64_t numbers_before = 0;  // in all parameters, tied ones once
  int64_t numbers_after = 0;

  // One line for a person.
  std::string text() const;
};

// Writes the pruned model of the directory `model` as the new directory `out`, with the tokenizer and the generation
// settings of the whole one. Errors (UserError): those of load_model, prune() and save_model; nothing is left behind.
PruneReport prune_directory(const std::filesystem::path& model, const std::filesystem::path& out,
                            const model::PruneOptions& options);

}  // namespace draftsmith::recipes
