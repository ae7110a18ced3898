// Decode states at the start of a decoding loop: all prompt tokens but the last are processed.
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
  // Hidden states of the prompts, in the form of DraftBegin::prompt_hidden.
  std::vector<at::Tensor> prompt_hidden;
};

// Returns the most tokens of a prompt that one step processes. Longer prompts take several steps, so that memory for
// attention scores grows with a prompt's length, not with its square.
int64_t prefill_chunk(at::Device device);

// Returns the state for `rows`, which are ordered sources x samples; the samples of a source have the same tokens.
// Encoder-decoder: an empty state over `encoder`, because the only committed token is the start token. Decoder-only:
// each prompt is processed once up to its last token, without logits, and its samples copy its keys and values.
std::unique_ptr<model::DecodeState> begin_state(model::LanguageModel& model, const model::EncoderStates& encoder,
                                                std::span<const Row> rows, const StateSize& size);

// Does the work of begin_state() and also returns the prompts' hidden states, one tensor for each of `hidden_layers`
// (model::StepInput).
Prefill prefill(model::LanguageModel& model, const model::EncoderStates& encoder, std::span<const Row> rows,
                const StateSize& size, const std::vector<int64_t>& hidden_layers);

// Repeats each row of a state `samples` times: row i becomes the former row i / samples. Does nothing for samples = 1.
void repeat_rows(model::DecodeState& state, int64_t samples);

}  // namespace draftsmith::infer
