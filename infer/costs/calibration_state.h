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
  int64_t rows = 1;             // of the batch, all equal
};

struct CalibrationState {
  model::EncoderStates encoder;  // encoder-decoder
  std::unique_ptr<model::DecodeState> state;
  model::StepOutput output;  // of the step that read `tokens`; empty without any
};

struct CalibrationSize {
  int64_t capacity = 0;  // tokens a row can hold
  int64_t rows = 1;
};

// Returns a batch of equal rows on the model's device.
model::TokenBatch equal_rows(const model::LanguageModel& model, std::span<const int64_t> tokens, int64_t rows = 1);

// Returns the model after `tokens`, which keeps the hidden states of `hidden_layers`.
CalibrationState state_after(model::LanguageModel& model, std::span<const int64_t> source,
                             std::span<const int64_t> tokens, const CalibrationSize& size,
                             const std::vector<int64_t>& hidden_layers = {});

// Returns `rows` lists of random ids, the same for the same arguments.
std::vector<std::vector<int64_t>> random_sources(int64_t rows, int64_t tokens, int64_t vocabulary);

struct ContextSize {
  int64_t rows = 1;
  int64_t source = 32;  // tokens of the source; decoder-only models ignore it
  int64_t length = 32;  // tokens before the step, at least 1
};

// Returns a context of random ids, the same for the same model and size.
CalibrationContext random_context(const model::ModelInfo& model, const ContextSize& size);

}  // namespace draftsmith::infer
