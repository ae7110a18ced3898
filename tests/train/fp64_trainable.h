// A tiny T5 whose files hold fp64, so that a resumed run is equal to a whole one beyond the digits of fp32.
#pragma once

#include <csignal>
#include <optional>

#include "tests/train/worlds_fixtures.h"

namespace draftsmith::train {

// Asks its process to stop at a micro-batch, if it is given one.
class KeptInFp64 : public PlainTrainable {
 public:
  explicit KeptInFp64(model::TransformerModel& model, std::optional<uint64_t> stop_at = {})
      : PlainTrainable(model), stop_at_(stop_at) {}
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override {
    if (dropout.step == stop_at_) request_stop(SIGTERM);
    return PlainTrainable::forward(batch, dropout);
  }
  void save(const std::filesystem::path& directory, const model::SaveOptions& options) const override {
    model::SaveOptions exact = options;
    exact.dtype = at::kDouble;
    PlainTrainable::save(directory, exact);
  }

 private:
  std::optional<uint64_t> stop_at_;
};

inline Trainee kept_in_fp64(std::optional<uint64_t> stop_at = {}, uint64_t seed = 5) {
  return [=](const Process& process) {
    const auto model = model::varied_model(tiny_config(), seed);
    KeptInFp64 trainable(*model, stop_at);
    process.train(trainable);
  };
}

}  // namespace draftsmith::train
