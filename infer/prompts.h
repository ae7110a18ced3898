// Settings of a generation, and prompts of a model's inputs: their first tokens, and how many new tokens have room
// behind them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infer/decode_options.h"
#include "infer/load_models.h"
#include "infer/loop/prefill.h"
#include "infer/loop/processors.h"
#include "model/files/generation_config.h"

namespace draftsmith::infer {

// ---- Settings of a generation
// The options, and the model's own where options are silent.

// Returns the model's generation settings with those that the options give in their place. Errors: UserError for
// settings that no method here supports, and for stop strings of a model without a tokenizer.
model::GenerationConfig generation_settings(const GenerationModels& models, const DecodeOptions& options);

// Returns what every method applies at every position. `generation` is what generation_settings() returned.
DecodeSettings decode_settings(const GenerationModels& models, const DecodeOptions& options,
                               const model::GenerationConfig& generation);

// ---- Prompts

// Requires a prompt after which the model predicts something (model::tokens_at_once()). Errors: UserError at `where`.
void require_length(const model::LanguageModel& model, int64_t prompt, const std::string& where);

// Maker of prompts from inputs: token ids for an encoder, or the prompt of a decoder-only model.
class Prompts {
 public:
  // `generation` are the model's settings with those of the options in their place. All must outlive this.
  Prompts(const GenerationModels& models, const DecodeOptions& options, const model::GenerationConfig& generation);

  // Returns the prompt without its `dropped` oldest tokens, though a BOS stays; of an encoder-decoder model it is the
  // start token.
  std::vector<int64_t> prompt_of(const std::vector<int64_t>& source, int64_t dropped) const;

  // Returns how the prompt of a source fits the context; an encoder's input always does. Messages name the source by
  // `line`, counted from 0. Errors: UserError for an id outside the vocabulary, an empty prompt where the model has no
  // first token, one that is shorter than the first block of block prediction, and a prompt too long under
  // long_prompts = error.
  PromptFit fit(const std::vector<int64_t>& source, uint64_t line) const;

 private:
  std::optional<int64_t> max_new_tokens() const;
  int64_t wanted_tokens(int64_t prompt) const;

  const GenerationModels& models_;
  const DecodeOptions& options_;
  const model::GenerationConfig& generation_;
  const model::ModelInfo& target_;
  const model::LanguageModel* drafter_;  // nullptr: none, or no model
  Context context_;  // the shorter one of the target's and the drafter's, since both hold the whole text
};

}  // namespace draftsmith::infer
