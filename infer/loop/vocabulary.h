// Which ids mean something: drafter and target must mean the same piece by an id, and ids above a tokenizer's pieces,
// which pad a model's logits to a round number, mean nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/aten.h"
#include "base/error.h"
#include "data/tokenizers/tokenizer.h"
#include "model/transformer/language_model.h"

namespace draftsmith::infer {

// Adds a problem that says how the vocabularies differ. With both tokenizers their hashes and, if these differ, their
// pieces are compared (logits may then differ in padding); without, the models' numbers of ids must be equal.
void compare_vocabularies(const model::ModelInfo& target, const model::ModelInfo& drafter,
                          const data::Tokenizer* target_tokenizer, const data::Tokenizer* drafter_tokenizer,
                          Problems& problems);

// Text of generated ids; ids that the tokenizer lacks print nothing.
std::string text_of_known(const data::Tokenizer& tokenizer, std::span<const int64_t> ids);

// Ids from the result on are padding: the tokenizer's pieces end before them, and no EOS is among them.
int64_t ids_in_use(const data::Tokenizer& tokenizer, std::span<const int64_t> eos);

// Gives ids from `ids` on no probability: logits [...,V] are changed in place. Costs nothing when there are none.
void mask_padding(at::Tensor logits, int64_t ids);

// Token lists for a model that may have fewer embeddings than the model they were made for: ids it lacks become `pad`.
std::vector<std::vector<int64_t>> mask_unknown_ids(const model::ModelInfo& model,
                                                   std::span<const std::vector<int64_t>> lists);

}  // namespace draftsmith::infer
