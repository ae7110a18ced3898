// Work before the first new token, timed again and again: the encoder and what begin() makes of its states, or the pass
// over a prompt.
#pragma once

#include <cstdint>
#include <vector>

#include "model/transformer/language_model.h"

namespace draftsmith::infer {

enum class PromptPart {
  kEncoder,         // encoder-decoders
  kCrossAttention,  // encoder-decoders: a decode state with the keys and values of the encoder's states
  kPrompt,          // decoder-only models: a decode state that has processed the prompt, without logits
};

// Returns the parts of a model's work, in order.
std::vector<PromptPart> prompt_parts(const model::ModelInfo& model);

class TimedPrompt {
 public:
  // Takes a source or prompt for each of `rows` equal rows. Decode states have room for `room` further tokens. The
  // model must outlive the object.
  TimedPrompt(model::LanguageModel& model, const std::vector<int64_t>& source, int64_t rows, int64_t room);

  // Does one part. Returns the seconds until the device has done it.
  double run(PromptPart part);

 private:
  void do_part(PromptPart part);

  model::LanguageModel& model_;
  model::TokenBatch batch_;
  int64_t room_;
  model::EncoderStates encoder_;  // encoder-decoders
};

}  // namespace draftsmith::infer
