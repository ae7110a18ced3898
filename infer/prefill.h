// The decode state of a batch at the point where the loop takes over: everything but the last committed token
// processed.
#pragma once

#include <memory>
#include <span>

#include "infer/rows.h"
#include "model/language_model.h"

namespace draftsmith::infer {

struct StateSize {
  int64_t capacity = 0;  // tokens a row can hold
  int64_t samples = 1;   // rows for each source or prompt
};

// Encoder-decoder: an empty state over `encoder` (the only committed token is the start token). Decoder-only: prompts
// are processed up to their last token, without logits, each once: its samples begin from copies of its keys and
// values. rows are in the order sources x samples; the samples of a source have the same tokens.
std::unique_ptr<model::DecodeState> begin_state(model::LanguageModel& model, const model::EncoderStates& encoder,
                                                std::span<const Row> rows, const StateSize& size);

}  // namespace draftsmith::infer
