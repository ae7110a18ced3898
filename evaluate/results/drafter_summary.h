// Results of the drafters themselves, the same for all methods.
#pragma once

#include "evaluate/results/measured_task.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns accuracy and cross entropy of a drafter, and its agreement with the target in choice and distribution.
PredictionResult drafter_prediction(const ForcedAlphas& predicted);

// Returns the quality of the predictions of the task's models and drafters (evaluate/suite/forced_texts.h). A model
// that decodes and also drafts is listed once, as a drafter.
TaskPrediction task_prediction(const MeasuredTask& measured);

// Returns step times and alpha_forced by the drafter's name.
Named<DrafterResult> drafter_results(const MeasuredTask& measured);

}  // namespace draftsmith::evaluate
