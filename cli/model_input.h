// Input of `generate` and `logits`: a model directory with its tokenizer, and lines of text or token ids.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "model/files/checkpoint.h"

namespace draftsmith::cli {

struct LoadedModel {
  std::unique_ptr<model::TransformerModel> model;
  std::unique_ptr<data::Tokenizer> tokenizer;  // null if the directory has none
};

// Loads a model and its tokenizer. Errors: UserError, also for a tokenizer with more ids than the model.
LoadedModel load_with_tokenizer(const std::filesystem::path& directory, const model::LoadOptions& options);

enum class LineKind { kSource, kTarget };

// Reads the token ids of every line of `file` ("-" is standard input). If `ids`, lines are ids separated by blanks,
// which are taken as they are. Otherwise lines are text; EOS is added to targets and to sources of encoder-decoders,
// and BOS before prompts if the tokenizer's settings ask for it. Empty lines are valid. Errors: a UserError with
// file:line for invalid UTF-8, words that are not ids, and ids outside the vocabulary.
std::vector<std::vector<int64_t>> read_token_lines(const std::string& file, const LoadedModel& loaded, LineKind kind,
                                                   bool ids);

// Returns the text of generated ids, without control and padding ids; line breaks become blanks.
std::string text_of(const std::vector<int64_t>& ids, const data::Tokenizer& tokenizer);
// Returns the ids separated by blanks.
std::string words_of(const std::vector<int64_t>& ids);

}  // namespace draftsmith::cli
