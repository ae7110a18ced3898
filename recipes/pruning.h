// Pruning of a model directory: what `draftsmith prune` and the recipe stage `prune` both do.
#pragma once

#include <filesystem>
#include <string>

#include "base/device.h"
#include "base/options.h"
#include "model/pruning/pruning.h"

namespace draftsmith::recipes {

// The result of pruning a directory.
struct PruneReport {
  model::TransformerConfig before;
  model::TransformerConfig after;
  int64_t numbers_before = 0;  // in all parameters, tied ones once
  int64_t numbers_after = 0;
  int64_t tokens = 0;  // counted for the vocabulary
  int64_t kept = 0;    // of them, those whose ids stay

  // A line for a person, two with a pruned vocabulary.
  std::string text() const;
};

// Writes the pruned model of the directory `model` as the new directory `out`, with the tokenizer and the generation
// settings of the whole one; `device` runs it over the calibration text. Errors (UserError): those of load_model,
// prune() and save_model, of the files that options name, a corpus of another tokenizer, files without tokens; what can
// be known before text is read is refused before. Interrupted when a stop is requested. Nothing is left behind.
PruneReport prune_directory(const std::filesystem::path& model, const std::filesystem::path& out,
                            const model::PruneOptions& options, at::Device device = at::kCPU);

}  // namespace draftsmith::recipes
