// Checks that the models and corpora of a stage have the same tokenizer.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/corpus/corpus.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::recipes {

// Throws UserError unless both hashes are equal. `where` names the model or corpus of `found`; `hint` says what to do.
void require_same_tokenizer(const std::string& expected, const std::string& found, const std::filesystem::path& where,
                            const std::string& hint);

// Throws UserError unless the corpus was made with the stage's tokenizer.
void require_tokenizer(const data::Corpus& corpus, const data::Tokenizer& tokenizer);

// Loads the tokenizer in a model's directory. Warns and returns null if the directory has none. Errors: UserError if
// the tokenizer's hash is not `expected`.
std::unique_ptr<data::Tokenizer> load_model_tokenizer(const std::filesystem::path& model, const std::string& expected);

}  // namespace draftsmith::recipes
