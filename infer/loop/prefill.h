// The start of a decoding loop: prompts that fit into the context, and decode states of which all prompt tokens but the
// last are processed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/registry.h"
#include "infer/loop/rows.h"
#include "model/transformer/language_model.h"

namespace draftsmith::infer {

// ---- Context
// Prompts of decoder-only models that are too long, and how many new tokens have room.

// Treatment of a prompt that leaves no room: it
enum class LongPrompts {
  kError,         // is an error that names the remedy
  kTruncateLeft,  // drops the prompt's beginning so that the wanted tokens fit behind it
  kSkip,          // gives empty results
};

// Returns their names in options.
const NamedValues<LongPrompts>& long_prompt_policies();

struct Context {
  int64_t tokens = 0;  // prompt and new tokens together; 0: no limit
  std::string owner;   // the limit's owner, for messages: "the model X"
  std::string lift{};  // the option that lifts the limit, for messages; empty: none does
};

struct PromptFit {
  int64_t dropped = 0;  // prompt tokens that are left out
  int64_t wanted = 0;   // new tokens asked for
  int64_t room = 0;     // new tokens that fit, at most `wanted`
  bool skipped = false;
};

// Returns how a prompt of `prompt` tokens fits with `wanted` >= 1 new tokens. A prompt that fills the context leaves no
// room. kTruncateLeft shortens the prompt to make room for the wanted tokens, but to no less than half the context;
// then fewer new tokens fit. Errors: UserError at `where` for kError and a prompt that leaves no room.
PromptFit fit_prompt(int64_t prompt, int64_t wanted, const Context& context, LongPrompts policy,
                     const std::string& where);

// ---- Decode states

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
// each prompt is processed once up to its last token, without logits, and its samples copy its keys and values. Also
// returns the prompts' hidden states, one tensor for each of `hidden_layers` (model::StepInput).
Prefill prefill(model::LanguageModel& model, const model::EncoderStates& encoder, std::span<const Row> rows,
                const StateSize& size, const std::vector<int64_t>& hidden_layers = {});

// Repeats each row of a state `samples` times: row i becomes the former row i / samples. Does nothing for samples = 1.
void repeat_rows(model::DecodeState& state, int64_t samples);

}  // namespace draftsmith::infer
