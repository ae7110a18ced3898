// What evaluations say of the drafters themselves, whatever method they serve, for results.json.
#pragma once

#include <nlohmann/json.hpp>

#include "evaluate/results/measured_task.h"

namespace draftsmith::evaluate {

// Accuracy and cross entropy of a drafter, and both relative to its target: its choice and its distribution.
nlohmann::ordered_json drafter_quality_json(const ForcedAlphas& predicted);

// How well each model of the task and each drafter predicts the texts (evaluate/suite/forced_texts.h).
nlohmann::ordered_json prediction_json(const MeasuredTask& measured);

// Step times and alpha_forced by drafter.
nlohmann::ordered_json drafters_json(const MeasuredTask& measured);

}  // namespace draftsmith::evaluate
