// Prediction of a setting's speed from measured parts: acceptance rate, cost ratio and the target's verification curve
// (methods.md §1). Unlike in Leviathan et al., verifying takes the measured time of a (G+1)-token step.
#pragma once

#include <optional>

#include "evaluate/measure/records.h"
#include "evaluate/suite/setting_grid.h"
#include "evaluate/theory/formulas.h"

namespace draftsmith::evaluate {

// Predicted speedup_decode and latency of a setting.
struct Prediction {
  double cost_ratio = 0;
  std::optional<double> speedup;           // from alpha, acceptances taken as independent; fixed windows only
  std::optional<SpecGameLatency> latency;  // seconds per token without encoder and prefill; fixed windows only
  double speedup_from_counts = 0;          // from counted drafter and target runs; the measured rest is overhead
};

// Returns the prediction for a setting that drafts; nothing if nothing was drafted.
std::optional<Prediction> predict(const Setting& run, const infer::DecodeStats& stats, const infer::StepCosts& costs);

}  // namespace draftsmith::evaluate
