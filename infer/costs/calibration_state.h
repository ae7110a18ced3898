// Where step times are measured: a model in the middle of a typical output.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/transformer/language_model.h"

namespace draftsmith::infer {

inline constexpr int64_t kCalibrationWarmup = 3;  // untimed repetitions before the timed ones
inline constexpr int64_t kCalibrationRepetitions = 15;

// What a calibration step works on: a source (empty for decoder-only models) and the tokens before the step.
struct CalibrationContext {
  std::vector<int64_t> source;
  std::vector<int64_t> prefix;  // at least one token
};

struct CalibrationState {
  model::EncoderStates encoder;  // encoder-decoder
  std::unique_ptr<model::DecodeState> state;
  model::StepOutput output;  // of the step that read `tokens`; empty without any
};

// int64 [1,L] on the model's device.
at::Tensor one_row(const model::LanguageModel& model, std::span<const int64_t> tokens);

// The model after `tokens`, with room for `capacity`, which keeps the hidden states of `hidden_layers`.
CalibrationState state_after(model::LanguageModel& model, std::span<const int64_t> source,
                             std::span<const int64_t> tokens, int64_t capacity,
                             const std::vector<int64_t>& hidden_layers = {});

}  // namespace draftsmith::infer
