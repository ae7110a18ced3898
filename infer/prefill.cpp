#include "infer/prefill.h"

#include <algorithm>

namespace draftsmith::infer {

namespace {

void process_prompts(model::LanguageModel& model, std::span<const Row> rows, model::DecodeState& state) {
  model::StepInput input;
  input.logits = model::Logits::kNone;
  int64_t width = 0;
  for (const Row& row : rows) {
    input.new_tokens.push_back(row.length() - 1);
    width = std::max(width, row.length() - 1);
  }
  if (width == 0) return;
  const auto count = static_cast<int64_t>(rows.size());
  std::vector<int64_t> tokens(static_cast<size_t>(count * width), model.info().pad);
  for (int64_t b = 0; b < count; ++b) {
    const auto& row = rows[static_cast<size_t>(b)].tokens;
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
  auto state = model.begin(static_cast<int64_t>(rows.size()), size.capacity);
  process_prompts(model, rows, *state);
  return state;
}

}  // namespace draftsmith::infer
