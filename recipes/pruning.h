// Pruning of a model directory, for `draftsmith prune` and stages of kind `prune`.
#pragma once

#include <filesystem>
#include <string>

#include "data/tokenizers/tokenizer.h"
#include "model/pruning/pruning.h"

namespace draftsmith::recipes {

// Prunes the model in the directory `model` and writes the new directory `out`, with the tokenizer and the generation
// settings of the whole model. Returns what stayed, in one line, two with a pruned vocabulary. Errors: UserError as
// load_model, prune() and save_model, for files of the options, a corpus of another tokenizer and files without tokens;
// Interrupted. Checks options before it reads text. After an error, there is no `out`.
std::string prune_directory(const std::filesystem::path& model, const std::filesystem::path& out,
                            const model::PruneOptions& options);

// Returns how often each of a model's ids occurs in a corpus's targets and, with `sources`, its sources. The model's
// `tokenizer` may be null. Errors: UserError for a corpus of another one, of more ids or without tokens.
std::vector<int64_t> count_tokens(const std::filesystem::path& file, int64_t vocabulary,
                                  const data::Tokenizer* tokenizer, bool sources);

}  // namespace draftsmith::recipes
