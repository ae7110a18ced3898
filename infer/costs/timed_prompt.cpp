#include "infer/costs/timed_prompt.h"

#include <stdexcept>

#include "base/device.h"
#include "base/timing.h"
#include "infer/costs/calibration_state.h"
#include "model/transformer/decoding_guard.h"

namespace draftsmith::infer {

std::vector<PromptPart> prompt_parts(const model::ModelInfo& model) {
  if (model.encoder_decoder) return {PromptPart::kEncoder, PromptPart::kCrossAttention};
  return {PromptPart::kPrompt};
}

TimedPrompt::TimedPrompt(model::LanguageModel& model, const std::vector<int64_t>& source, int64_t rows, int64_t room)
    : model_(model), batch_(equal_rows(model, source, rows)), room_(room) {
  const model::DecodingGuard guard;
  if (model.info().encoder_decoder) encoder_ = model.encode(batch_);
}

double TimedPrompt::run(PromptPart part) {
  const model::DecodingGuard guard;
  synchronize(model_.info().device);
  const Stopwatch watch;
  do_part(part);
  synchronize(model_.info().device);
  return watch.seconds();
}

void TimedPrompt::do_part(PromptPart part) {
  switch (part) {
    case PromptPart::kEncoder:
      encoder_ = model_.encode(batch_);
      return;
    case PromptPart::kCrossAttention:
      model_.give_back(model_.begin(encoder_, room_));
      return;
    case PromptPart::kPrompt: {
      auto state = model_.begin(std::ssize(batch_.lengths), batch_.tokens.size(1) + room_);
      model_.step({batch_.tokens, batch_.lengths, model::Logits::kNone, {}}, *state);
      model_.give_back(std::move(state));
      return;
    }
  }
  throw std::logic_error("unknown part of the work before the first token");
}

}  // namespace draftsmith::infer
