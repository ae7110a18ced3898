#include "infer/prefill.h"

#include <algorithm>

namespace draftsmith::infer {

namespace {

// Processes the prompts of `rows`, which are row 0, row `samples` and so on.
void process_prompts(model::LanguageModel& model, std::span<const Row> rows, size_t samples,
                     model::DecodeState& state) {
  model::StepInput input;
  input.logits = model::Logits::kNone;
  int64_t width = 0;
  for (size_t row = 0; row < rows.size(); row += samples) {
    input.new_tokens.push_back(rows[row].length() - 1);
    width = std::max(width, rows[row].length() - 1);
  }
  if (width == 0) return;
  const auto count = static_cast<int64_t>(input.new_tokens.size());
  std::vector<int64_t> tokens(static_cast<size_t>(count * width), model.info().pad);
  for (int64_t b = 0; b < count; ++b) {
    const auto& row = rows[static_cast<size_t>(b) * samples].tokens;
    std::copy(row.begin(), row.end() - 1, tokens.begin() + b * width);
  }
  input.tokens = to_device(tokens, {count, width}, model.info().device);  // [B,L]
  model.step(input, state);
}

}  // namespace

std::unique_ptr<model::DecodeState> begin_state(model::LanguageModel& model, const model::EncoderStates& encoder,
                                                std::span<const Row> rows, const StateSize& size) {
  if (model.info().encoder_decoder) {
    return model.begin(encoder, size.capacity, size.samples);
  }
  const auto prompts = static_cast<int64_t>(rows.size()) / size.samples;
  auto state = model.begin(prompts, size.capacity);
  process_prompts(model, rows, static_cast<size_t>(size.samples), *state);
  if (size.samples == 1) return state;
  std::vector<int64_t> prompt_of_row;
  for (int64_t row = 0; row < prompts * size.samples; ++row) prompt_of_row.push_back(row / size.samples);
  state->select_rows(prompt_of_row);
  return state;
}

}  // namespace draftsmith::infer
