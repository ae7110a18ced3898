// Vocabulary checks of drafter and target, and logits processors that a model directory's generation settings ask for
// (forced and suppressed tokens, minimum lengths, repetition rules), in Transformers' order. Processors change every
// position, also inside a draft under verification.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/aten.h"
#include "base/error.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/loop/rows.h"
#include "infer/sampling/row_kernels.h"
#include "model/files/generation_config.h"
#include "model/transformer/language_model.h"

namespace draftsmith::infer {

// ---- Vocabularies
// Drafter and target must mean the same piece by an id. Ids above a tokenizer's pieces and added tokens only pad a
// model's logits to a round number.

// Adds a problem if the vocabularies differ. With both tokenizers given, compares their hashes and, if these differ,
// their pieces: one may have further added tokens (Qwen3's after Qwen2.5's), and the logits may differ in padding.
// Otherwise the models must have equally many ids.
void compare_vocabularies(const model::ModelInfo& target, const model::ModelInfo& drafter,
                          const data::Tokenizer* target_tokenizer, const data::Tokenizer* drafter_tokenizer,
                          Problems& problems);

// Returns the text of generated ids. Ids that the tokenizer lacks have no text.
std::string text_of_known(const data::Tokenizer& tokenizer, std::span<const int64_t> ids);

// Returns the number of ids in use. Ids from there on are padding: no piece or added token of the tokenizer, no EOS.
int64_t ids_in_use(const data::Tokenizer& tokenizer, std::span<const int64_t> eos);

// Sets the logits [...,V] of ids from `ids` on to -inf, in place. Costs nothing if there are none.
void mask_padding(at::Tensor logits, int64_t ids);

// Returns tokens of a model with `vocabulary` ids for another model: ids that the other lacks become its padding id.
at::Tensor known_tokens(const at::Tensor& tokens, const model::ModelInfo& model, int64_t vocabulary);

// Returns logits [...,V'] as logits [...,vocabulary]: without further ids, or with -inf for missing ones.
at::Tensor fit_vocabulary(const at::Tensor& logits, int64_t vocabulary);

// Returns the token lists with ids that the model lacks replaced by its padding id.
std::vector<std::vector<int64_t>> mask_unknown_ids(const model::ModelInfo& model,
                                                   std::span<const std::vector<int64_t>> lists);

// ---- Processors

// The tokens before some logits: logits[b,j] predict the token after row b's committed tokens and its first `first + j`
// drafted tokens.
struct ProcessorContext {
  std::span<const Row> rows;
  std::span<const std::vector<int64_t>> drafted = {};  // [B] read if needs_history(); empty: nothing is drafted
  int64_t first = 0;
};

class LogitsProcessors {
 public:
  LogitsProcessors() = default;
  explicit LogitsProcessors(model::GenerationConfig settings);

  bool empty() const { return !active_; }
  // Returns whether a processor reads the drafted tokens themselves, beyond their number.
  bool needs_history() const { return history_; }
  // Changes logits [B,P,V] in place: one operation for each kind of rule, whatever the rows and positions.
  void apply(at::Tensor logits, const ProcessorContext& context) const;

 private:
  model::GenerationConfig settings_;
  bool active_ = false;
  bool history_ = false;
};

// Settings that every decoding method applies at every position.
struct DecodeSettings {
  Warping warping;
  LogitsProcessors processors;
  std::vector<int64_t> eos;                           // any of these ids ends a row
  bool measure_alpha = false;                         // also computes the overlap of drafter and target
  int64_t ids = std::numeric_limits<int64_t>::max();  // ids from this one on only pad the logits: never put out

  // Rules out padding ids and applies the processors. Changes the logits in place: [B,P,V], or [B,V] for one position.
  void process(const at::Tensor& logits, const ProcessorContext& context) const;
};

}  // namespace draftsmith::infer
