// A drafter and the encoder that it shares as one model, which writes by itself: for validation in training, for texts
// that are given, and where single steps are timed.
#pragma once

#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

class SharedEncoderPair final : public LanguageModel {
 public:
  // Takes a drafter of shared_encoder_kind() and a model whose encoder states have the width that it reads, both on one
  // device. They must outlive this object.
  SharedEncoderPair(TransformerModel& drafter, LanguageModel& target) : drafter_(drafter), target_(target) {}

  const ModelInfo& info() const override { return drafter_.info(); }
  // Runs the target's encoder and projects its states.
  EncoderStates encode(const TokenBatch& source) override { return drafter_.project_encoder(target_.encode(source)); }
  // The rest is the drafter's own.
  std::unique_ptr<DecodeState> begin(const EncoderStates& source, int64_t capacity, int64_t samples = 1) override {
    return drafter_.begin(source, capacity, samples);
  }
  std::unique_ptr<DecodeState> begin(int64_t rows, int64_t capacity) override { return drafter_.begin(rows, capacity); }
  StepOutput step(const StepInput& input, DecodeState& state) override { return drafter_.step(input, state); }
  void give_back(std::unique_ptr<DecodeState> state) override { drafter_.give_back(std::move(state)); }
  void free_states() override { drafter_.free_states(); }
  std::optional<DevicePlaces> device_places(DecodeState& state) override { return drafter_.device_places(state); }
  StepOutput step_on_device(const DeviceStepInput& input, DecodeState& state) override {
    return drafter_.step_on_device(input, state);
  }

 private:
  TransformerModel& drafter_;
  LanguageModel& target_;
};

}  // namespace draftsmith::model
