// Whether drafter and target speak of the same tokens: an id must mean the same piece in both.
#pragma once

#include "base/error.h"
#include "data/tokenizer.h"
#include "model/language_model.h"

namespace draftsmith::infer {

// Adds a problem that says how the vocabularies differ. With both tokenizers their hashes and, if these differ, their
// pieces are compared (logits may then differ in padding); without, the models' numbers of ids must be equal.
void compare_vocabularies(const model::ModelInfo& target, const model::ModelInfo& drafter,
                          const data::Tokenizer* target_tokenizer, const data::Tokenizer* drafter_tokenizer,
                          Problems& problems);

}  // namespace draftsmith::infer
