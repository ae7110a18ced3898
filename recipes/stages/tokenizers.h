// Whether the models and corpora of a stage speak of the same tokens.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/corpus/corpus.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::recipes {

// UserError unless both hashes are of the same tokenizer; `where` names the model or corpus of `found`, `hint` says
// what to do.
void require_same_tokenizer(const std::string& expected, const std::string& found, const std::filesystem::path& where,
                            const std::string& hint);

// The same of a corpus and the tokenizer of its stage.
void require_tokenizer(const data::Corpus& corpus, const data::Tokenizer& tokenizer);

// The tokenizer in a model's directory, which must be that of the hash `expected`. Nothing, with a warning, for a
// directory without a tokenizer file: it cannot be compared then. Errors: UserError.
std::unique_ptr<data::Tokenizer> load_model_tokenizer(const std::filesystem::path& model, const std::string& expected);

}  // namespace draftsmith::recipes
