#include "infer/costs/calibration_state.h"

#include "infer/loop/rows.h"

namespace draftsmith::infer {

at::Tensor one_row(const model::LanguageModel& model, std::span<const int64_t> tokens) {
  return to_device(tokens, {1, std::ssize(tokens)}, model.info().device);
}

CalibrationState state_after(model::LanguageModel& model, std::span<const int64_t> source,
                             std::span<const int64_t> tokens, int64_t capacity,
                             const std::vector<int64_t>& hidden_layers) {
  CalibrationState prepared;
  if (model.info().encoder_decoder) {
    prepared.encoder = model.encode({one_row(model, source), {std::ssize(source)}});
    prepared.state = model.begin(prepared.encoder, capacity);
  } else {
    prepared.state = model.begin(1, capacity);
  }
  if (tokens.empty()) return prepared;
  prepared.output =
      model.step({one_row(model, tokens), {std::ssize(tokens)}, model::Logits::kNone, hidden_layers}, *prepared.state);
  return prepared;
}

}  // namespace draftsmith::infer
