// The decode state of a batch at the point where the loop takes over: everything but the last committed token
// processed.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "infer/loop/rows.h"
#include "model/transformer/language_model.h"

namespace draftsmith::infer {

struct StateSize {
  int64_t capacity = 0;  // tokens a row can hold
  int64_t samples = 1;   // rows for each source or prompt
};

struct Prefill {
  std::unique_ptr<model::DecodeState> state;
  // Hidden states of the prompts, as DraftBegin::prompt_hidden wants them.
  std::vector<at::Tensor> prompt_hidden;
};

// Encoder-decoder: an empty state over `encoder` (the only committed token is the start token). Decoder-only: prompts
// are processed up to their last token, without logits, each once: its samples begin from copies of its keys and
// values. rows are in the order sources x samples; the samples of a source have the same tokens.
std::unique_ptr<model::DecodeState> begin_state(model::LanguageModel& model, const model::EncoderStates& encoder,
                                                std::span<const Row> rows, const StateSize& size);

// The same, keeping hidden states of the prompts: of `hidden_layers` (model::StepInput), one tensor for each.
Prefill prefill(model::LanguageModel& model, const model::EncoderStates& encoder, std::span<const Row> rows,
                const StateSize& size, const std::vector<int64_t>& hidden_layers);

// Row `i` of the result is row i / samples: of a state that has a row for each prompt. Nothing for samples = 1.
void repeat_rows(model::DecodeState& state, int64_t samples);

}  // namespace draftsmith::infer
