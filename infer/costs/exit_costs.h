// Step times of a model whose first layers draft for it.
#pragma once

#include "infer/costs/step_costs.h"
#include "infer/forced/forced_alpha.h"

namespace draftsmith::infer {

// As measure_step_costs(), over the one state that both share: target[L-1] is the verification of L-1 drafted tokens,
// whose first layers have run; target[0] all layers of one token.
StepCosts measure_exit_costs(const ExitDrafting& drafting, const CalibrationContext& context, int64_t max_tokens,
                             int64_t repetitions = 15);

}  // namespace draftsmith::infer
