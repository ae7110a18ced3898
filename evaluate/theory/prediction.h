// What theory predicts from measured parts: acceptance rate, cost ratio and the target's verification curve
// (methods.md §1, after Leviathan et al., with the measured time of a (G+1)-token step in place of a one-token step's).
#pragma once

#include <optional>

#include "evaluate/measure/records.h"
#include "evaluate/suite/setting_grid.h"
#include "evaluate/theory/formulas.h"

namespace draftsmith::evaluate {

struct Prediction {
  double cost_ratio = 0;
  // From alpha, with acceptances independent of each other; fixed windows only.
  std::optional<double> speedup;
  // SpecGame's latencies per token without encoder and prefill, seconds, from the same; fixed windows only.
  std::optional<SpecGameLatency> latency;
  // From the run's own counts of drafter and target runs: what is missing from it to the measured speedup is overhead.
  double speedup_from_counts = 0;
};

// Prediction of speedup_decode for a run that drafts; nothing when nothing was drafted.
std::optional<Prediction> predict(const Setting& run, const infer::DecodeStats& stats, const infer::StepCosts& costs);

}  // namespace draftsmith::evaluate
