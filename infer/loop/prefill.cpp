#include "infer/loop/prefill.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/signals.h"

namespace draftsmith::infer {

const NamedValues<LongPrompts>& long_prompt_policies() {
  static const NamedValues<LongPrompts> kPolicies(
      "policy for long prompts",
      {{"error", LongPrompts::kError}, {"truncate-left", LongPrompts::kTruncateLeft}, {"skip", LongPrompts::kSkip}});
  return kPolicies;
}

PromptFit fit_prompt(int64_t prompt, int64_t wanted, const Context& context, LongPrompts policy,
                     const std::string& where) {
  if (context.tokens == 0) return {.wanted = wanted, .room = wanted};
  if (policy == LongPrompts::kTruncateLeft) {
    const int64_t half = std::max<int64_t>((context.tokens + 1) / 2, 1);
    const int64_t kept = std::min({prompt, std::max(context.tokens - wanted, half), context.tokens - 1});
    if (kept > 0) return {.dropped = prompt - kept, .wanted = wanted, .room = std::min(wanted, context.tokens - kept)};
  } else if (prompt < context.tokens) {
    return {.wanted = wanted, .room = std::min(wanted, context.tokens - prompt)};
  } else if (policy == LongPrompts::kSkip) {
    return {.wanted = wanted, .skipped = true};
  }
  throw UserError({.where = where,
                   .what = "the prompt leaves no room for a new token in the context of " + context.owner,
                   .expected = fmt::format("fewer than {} tokens", context.tokens),
                   .found = fmt::format("{} tokens", prompt),
                   .hint = "shorten the prompt, or choose --long-prompts truncate-left or skip" +
                           (context.lift.empty() ? "" : "; " + context.lift)});
}

namespace {

// Returns the prompt tokens to process, of row 0, row `samples` and so on. tokens is undefined if all prompts have one
// token.
model::StepInput prompt_input(const model::LanguageModel& model, std::span<const Row> rows, size_t samples) {
  model::StepInput input;
  input.logits = model::Logits::kNone;
  std::vector<std::span<const int64_t>> prompts;
  for (size_t row = 0; row < rows.size(); row += samples) {
    prompts.push_back(std::span(rows[row].tokens).first(rows[row].tokens.size() - 1));
    input.new_tokens.push_back(std::ssize(prompts.back()));
  }
  if (any(input.new_tokens)) input.tokens = padded(prompts, model.info().pad, model.info().device);  // [B,L]
  return input;
}

// Returns the tokens of `prompts` from column `begin` on, at most `length` of a row.
model::StepInput chunk_of(const model::StepInput& prompts, int64_t begin, int64_t length) {
  model::StepInput chunk;
  chunk.tokens = prompts.tokens.narrow(1, begin, length).contiguous();  // [B,length]
  for (const int64_t tokens : prompts.new_tokens) {
    chunk.new_tokens.push_back(std::clamp<int64_t>(tokens - begin, 0, length));
  }
  chunk.logits = prompts.logits;
  chunk.hidden_layers = prompts.hidden_layers;
  return chunk;
}

// Processes the prompts in chunks of equal length, so that hidden states, and where attention is no kernel a layer's
// scores [B,H,L,T], have few tokens L. Returns the wanted hidden states.
std::vector<at::Tensor> process(model::LanguageModel& model, const model::StepInput& prompts,
                                model::DecodeState& state) {
  const int64_t width = prompts.tokens.size(1);
  const int64_t most = prefill_chunk(model.info().device);
  if (width <= most) return model.step(prompts, state).hidden;
  const int64_t chunks = (width + most - 1) / most;
  const int64_t length = (width + chunks - 1) / chunks;
  std::vector<at::Tensor> hidden(prompts.hidden_layers.size());
  for (int64_t begin = 0; begin < width; begin += length) {
    work_point();
    const int64_t count = std::min(length, width - begin);
    const std::vector<at::Tensor> part = model.step(chunk_of(prompts, begin, count), state).hidden;
    for (size_t i = 0; i < part.size(); ++i) {
      if (!hidden[i].defined()) hidden[i] = part[i].new_empty({part[i].size(0), width, part[i].size(2)});  // [B,L,D]
      hidden[i].narrow(1, begin, count).copy_(part[i]);
    }
  }
  return hidden;
}

}  // namespace

int64_t prefill_chunk(at::Device device) {
  return device.is_cpu() ? 256 : 2048;
}

void repeat_rows(model::DecodeState& state, int64_t samples) {
  if (samples == 1) return;
  std::vector<int64_t> prompt_of_row;
  for (int64_t row = 0; row < state.rows() * samples; ++row) prompt_of_row.push_back(row / samples);
  state.select_rows(prompt_of_row);
}

Prefill prefill(model::LanguageModel& model, const model::EncoderStates& encoder, std::span<const Row> rows,
                const StateSize& size, const std::vector<int64_t>& hidden_layers) {
  if (model.info().encoder_decoder) return {model.begin(encoder, size.capacity, size.samples), {}};
  Prefill result{model.begin(static_cast<int64_t>(rows.size()) / size.samples, size.capacity), {}};
  model::StepInput input = prompt_input(model, rows, static_cast<size_t>(size.samples));
  if (input.tokens.defined()) {
    input.hidden_layers = hidden_layers;
    result.prompt_hidden = process(model, input, *result.state);
  }
  repeat_rows(*result.state, size.samples);
  return result;
}

}  // namespace draftsmith::infer
