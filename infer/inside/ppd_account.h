// Layer-units of predictive pipelined decoding, counted as in Theorem 4.1 (Yang et al. 2024): a unit is one layer run
// for one token.
#pragma once

#include "infer/loop/decode_stats.h"

namespace draftsmith::infer {

// One token's run through the decoder.
struct PpdTally {
  bool resumed = false;   // a branch had already run the token's first d - d-bar layers
  int64_t branches = 0;   // branches that ran meanwhile, each the first d - d-bar layers of a candidate
  bool followed = false;  // the run's new token is not the last of its sequence
  bool matched = false;   // the run's new token was one of the branches
};

// Counts runs.
//
// Latency: d units for a run, d-bar units if it resumed. Branches add none: they run beside the last d - d-bar layers.
// Compute: the latency, and d - d-bar units for each branch. Predictions and matches count only tokens that another
// token follows, l - 1 of a sequence of l, because only these can save time.
//
// So with k branches for every token the units equal ppd_cost() at the counted match rate. A decoder that leaves out
// branches that cannot continue uses less compute.
class PpdAccount {
 public:
  // Errors: std::logic_error unless d-bar is in d/2 .. d.
  PpdAccount(int64_t layers, int64_t early_layer);

  // Returns d - d-bar, the number of layers that branches run.
  int64_t ahead() const { return layers_ - early_layer_; }
  // Adds to latency_units, compute_units, layer_runs, early_predictions and early_matches.
  void count(const PpdTally& run, DecodeStats& stats) const;

 private:
  int64_t layers_;
  int64_t early_layer_;
};

}  // namespace draftsmith::infer
