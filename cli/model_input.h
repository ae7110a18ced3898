// Input of `generate` and `logits`: lines of text or token ids.
#pragma once

#include <string>
#include <vector>

#include "infer/load_models.h"

namespace draftsmith::cli {

enum class LineKind { kSource, kTarget };

// Reads the token ids of every line of `file` ("-" is standard input). If `ids`, lines are ids separated by blanks,
// which are taken as they are. Otherwise lines are text; EOS is added to targets and to sources of encoder-decoders,
// and BOS before prompts if the tokenizer's settings ask for it. Empty lines are valid. Errors: a UserError with
// file:line for invalid UTF-8, words that are not ids, and ids outside the vocabulary.
std::vector<std::vector<int64_t>> read_token_lines(const std::string& file, const infer::LoadedModel& loaded,
                                                   LineKind kind, bool ids);

// Returns the text with blanks for line breaks.
std::string one_line(std::string text);
// Returns the text of generated ids, without control and padding ids; line breaks become blanks.
std::string text_of(const std::vector<int64_t>& ids, const data::Tokenizer& tokenizer);
// Returns the ids separated by blanks.
std::string words_of(const std::vector<int64_t>& ids);

}  // namespace draftsmith::cli
