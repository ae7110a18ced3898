// Results of the drafters themselves, whatever method they serve.
#pragma once

#include "evaluate/results/measured_task.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns accuracy and cross entropy of a drafter, and how often it agrees with its target in choice and distribution.
PredictionResult drafter_prediction(const ForcedAlphas& predicted);

// Returns how well each model of the task and each drafter predicts the texts (evaluate/suite/forced_texts.h).
TaskPrediction task_prediction(const MeasuredTask& measured);

// Returns step times and alpha_forced by drafter.
Named<DrafterResult> drafter_results(const MeasuredTask& measured);

}  // namespace draftsmith::evaluate
