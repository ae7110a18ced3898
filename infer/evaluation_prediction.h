// What theory predicts from measured parts: acceptance rate, cost ratio and the target's verification curve
// (methods.md §1, after Leviathan et al., with the measured time of a (G+1)-token step in place of a one-token step's).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "infer/evaluation_records.h"
#include "infer/evaluation_runs.h"

namespace draftsmith::infer {

// Measured times of one decoder step at a typical length, seconds, as they are while drafter and target take turns.
struct StepCosts {
  std::vector<double> target;  // target[L-1]: a step of L tokens after L-1 drafted ones; target[0]: greedy's
  double draft = 0;            // the drafter's step of one token; 0: no drafter

  double cost_ratio() const { return draft / target.at(0); }
  // Time of an L-token target step relative to a one-token step; linear between and beyond measured lengths.
  double relative_target(double tokens) const;
};

struct Prediction {
  double cost_ratio = 0;
  // From alpha, with acceptances independent of each other; fixed windows only.
  std::optional<double> speedup;
  // From the run's own counts of drafter and target runs: what is missing from it to the measured speedup is overhead.
  double speedup_from_counts = 0;
};

// Expected emitted tokens of a target run: (1 - alpha^(G+1)) / (1 - alpha).
double expected_tokens(double alpha, int64_t window);

// Prediction of speedup_decode for a run that drafts; nothing when nothing was drafted.
std::optional<Prediction> predict(const RunSettings& run, const DecodeStats& stats, const StepCosts& costs);

}  // namespace draftsmith::infer
