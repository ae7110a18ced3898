// Measures the time of decoder steps at a typical length: the verification curve and the cost ratio.
#pragma once

#include <cstdint>

#include "infer/costs/calibration_state.h"
#include "infer/costs/step_times.h"
#include "infer/drafters/drafter.h"
#include "model/transformer/language_model.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::infer {

// Median seconds of the steps of rounds as decoding runs them, after `prefix`: L-1 steps of the drafter, then one of
// the target with L tokens, for L = 2..max_tokens in turn, so that each model finds the caches as the other left them;
// and of a target's one-token step after another (greedy). Logits everywhere.
StepCosts measure_step_costs(model::LanguageModel& target, model::LanguageModel& drafter,
                             const CalibrationContext& context, int64_t max_tokens, int64_t repetitions = 15);
// The same with a drafter that is no model.
StepCosts measure_step_costs(model::LanguageModel& target, Drafter& drafter, const CalibrationContext& context,
                             int64_t max_tokens, int64_t repetitions = 15);

// The same with a Tandem secondary of the target. Writing the target's projected representations into the secondary's
// caches, once for each verification, counts as part of the target's step.
StepCosts measure_tandem_costs(model::LanguageModel& target, model::TransformerModel& secondary,
                               const CalibrationContext& context, int64_t max_tokens, int64_t repetitions = 15);

}  // namespace draftsmith::infer
