// A model directory with its tokenizer, and lines of text or token ids for it: what `generate` and `logits` read.
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
  std::unique_ptr<data::Tokenizer> tokenizer;  // null: the directory has none
};

// Errors: UserError that names the directory's problems, also a tokenizer with more ids than the model.
LoadedModel load_with_tokenizer(const std::filesystem::path& directory, const model::LoadOptions& options);

enum class LineKind { kSource, kTarget };

// Token ids of every line of `file` ("-": standard input). With `ids` the lines are blank-separated ids, taken
// verbatim; else text, to which EOS is added as the model was trained: to sources of encoder-decoders and to targets;
// and BOS before prompts where the tokenizer's settings say so.
// An empty line is valid. Errors: UserError naming file:line for invalid UTF-8, words that are no ids, ids outside the
// vocabulary.
std::vector<std::vector<int64_t>> read_token_lines(const std::string& file, const LoadedModel& loaded, LineKind kind,
                                                   bool ids);

// Text of generated ids; control and padding ids print nothing, a line break inside becomes a blank.
std::string text_of(const std::vector<int64_t>& ids, const data::Tokenizer& tokenizer);
// Ids separated by blanks.
std::string words_of(const std::vector<int64_t>& ids);

}  // namespace draftsmith::cli
