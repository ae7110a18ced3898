// Checks that lossless settings give what they promise: greedy outputs token for token but for rounding, and first
// tokens of the target's own distribution when sampling.
#pragma once

#include <optional>

#include "evaluate/results/measured_task.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns the comparison of a setting at temperature 0 with greedy decoding of the same model. Where a lossless setting
// differs first, both tokens must be within a tolerance of the most likely one, after processors and without padding
// ids: kRoundingSafety times the rounding of the model's logits, measured on lines that differ.
Exactness check_exactness(const MeasuredTask& measured, const Setting& setting, Engine& engine);

// Factor between the measured rounding of a logit and the margin that rounding may turn round. Each of two logits may
// err, by more on other lines and in other forms of a step than on those measured.
constexpr double kRoundingSafety = 8;

// Returns the test of a sampled setting's first tokens. Nothing for settings that may change the distribution, and for
// records without first tokens.
std::optional<FirstTokenTest> check_first_tokens(const MeasuredTask& measured, const Setting& setting, uint64_t seed,
                                                 Engine& engine);

}  // namespace draftsmith::evaluate
