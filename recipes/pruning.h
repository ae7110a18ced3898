// Pruning of a model directory, for `draftsmith prune` and stages of kind `prune`.
#pragma once

#include <filesystem>
#include <string>

#include "base/options.h"
#include "model/pruning/pruning.h"

namespace draftsmith::recipes {

// The result of pruning a directory.
struct PruneReport {
  model::TransformerConfig before;
  model::TransformerConfig after;
  int64_t numbers_before = 0;  // numbers in all parameters, tied ones once
  int64_t numbers_after = 0;
  int64_t tokens = 0;  // tokens counted for the vocabulary
  int64_t kept = 0;    // counted tokens whose ids stay

  // Returns a description of one line, two with a pruned vocabulary.
  std::string text() const;
};

// Prunes the model in the directory `model` and writes the new directory `out`, with the tokenizer and the generation
// settings of the whole model. Errors: UserError as load_model,
// prune() and save_model, for files of the options, a corpus of another tokenizer and files without tokens; Interrupted
// if a stop is requested. Checks options before it reads text. After an error, there is no `out`.
PruneReport prune_directory(const std::filesystem::path& model, const std::filesystem::path& out,
                            const model::PruneOptions& options);

}  // namespace draftsmith::recipes
