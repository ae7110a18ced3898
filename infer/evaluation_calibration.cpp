#include "infer/evaluation_calibration.h"

#include <algorithm>
#include <memory>

#include <ATen/core/grad_mode.h>

#include "base/device.h"
#include "base/timing.h"

namespace draftsmith::infer {
namespace {

constexpr int64_t kWarmup = 3;

at::Tensor row(const std::vector<int64_t>& tokens, at::Device device) {
  return at::tensor(tokens, at::kLong).view({1, -1}).to(device);  // [1,L]
}

std::unique_ptr<model::DecodeState> begin(model::LanguageModel& model, const CalibrationContext& context,
                                          int64_t capacity) {
  if (!model.info().encoder_decoder) return model.begin(1, capacity);
  const auto length = static_cast<int64_t>(context.source.size());
  return model.begin(model.encode({row(context.source, model.info().device), {length}}), capacity);
}

}  // namespace

std::vector<double> measure_step_seconds(model::LanguageModel& model, const CalibrationContext& context,
                                         int64_t max_tokens, int64_t repetitions) {
  const at::NoGradGuard no_gradients;
  const at::Device device = model.info().device;
  const auto length = static_cast<int64_t>(context.prefix.size());
  const auto state = begin(model, context, length + max_tokens);
  model.step({row(context.prefix, device), {length}, model::Logits::kNone, {}}, *state);

  std::vector<std::vector<double>> seconds(static_cast<size_t>(max_tokens));
  for (int64_t repetition = 0; repetition < kWarmup + repetitions; ++repetition) {
    for (int64_t tokens = 1; tokens <= max_tokens; ++tokens) {
      const auto step = row(std::vector<int64_t>(static_cast<size_t>(tokens), context.prefix.back()), device);
      synchronize(device);
      const Stopwatch watch;
      const auto output = model.step({step, {tokens}, model::Logits::kAll, {}}, *state);
      output.logits.argmax(-1).to(at::kCPU);
      const double elapsed = watch.seconds();
      state->rollback(std::vector<int64_t>{length});
      if (repetition >= kWarmup) seconds[static_cast<size_t>(tokens - 1)].push_back(elapsed);
    }
  }
  std::vector<double> medians;
  for (auto& values : seconds) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    medians.push_back(*middle);
  }
  return medians;
}

}  // namespace draftsmith::infer
