// Vocabulary checks: drafter and target must mean the same piece by an id. Ids above a tokenizer's pieces and added
// tokens only pad a model's logits to a round number.
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

// Adds a problem if the vocabularies differ. With both tokenizers given, compares their hashes and, if these differ,
// their pieces; the logits may then differ in padding. Otherwise the models must have equally many ids.
void compare_vocabularies(const model::ModelInfo& target, const model::ModelInfo& drafter,
                          const data::Tokenizer* target_tokenizer, const data::Tokenizer* drafter_tokenizer,
                          Problems& problems);

// Returns the text of generated ids. Ids that the tokenizer lacks have no text.
std::string text_of_known(const data::Tokenizer& tokenizer, std::span<const int64_t> ids);

// Returns the number of ids in use. Ids from there on are padding: neither a piece or added token of the tokenizer nor
// an EOS.
int64_t ids_in_use(const data::Tokenizer& tokenizer, std::span<const int64_t> eos);

// Sets the logits [...,V] of ids from `ids` on to -inf, in place. Costs nothing if there are none.
void mask_padding(at::Tensor logits, int64_t ids);

// Returns tokens of a model with `vocabulary` ids for another model: ids that the other lacks become its padding id.
at::Tensor known_tokens(const at::Tensor& tokens, const model::ModelInfo& model, int64_t vocabulary);

// Returns logits [B,V'] as logits [B,vocabulary]: without further ids, or with -inf for missing ones.
at::Tensor fit_vocabulary(const at::Tensor& logits, int64_t vocabulary);

// Returns the token lists with ids that the model lacks replaced by its padding id.
std::vector<std::vector<int64_t>> mask_unknown_ids(const model::ModelInfo& model,
                                                   std::span<const std::vector<int64_t>> lists);

}  // namespace draftsmith::infer
