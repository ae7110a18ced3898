// Measures the time of decoder steps of 1..L tokens at a typical length: the verification curve and the cost ratio.
#pragma once

#include <cstdint>
#include <vector>

#include "model/language_model.h"

namespace draftsmith::infer {

// What a calibration step works on: a source (empty for decoder-only models) and the tokens before the step.
struct CalibrationContext {
  std::vector<int64_t> source;
  std::vector<int64_t> prefix;  // at least one token
};

// Median seconds of steps of 1..max_tokens tokens with logits everywhere, after `prefix`; lengths are interleaved.
std::vector<double> measure_step_seconds(model::LanguageModel& model, const CalibrationContext& context,
                                         int64_t max_tokens, int64_t repetitions = 15);

}  // namespace draftsmith::infer
