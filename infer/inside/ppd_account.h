// Layer-units of predictive pipelined decoding, as Theorem 4.1 (Yang et al. 2024) counts them: a unit is one layer run
// for one token.
#pragma once

#include "infer/loop/decode_stats.h"

namespace draftsmith::infer {

// One token's run through the decoder.
struct PpdTally {
  bool resumed = false;   // a branch of the token before had run its first d - d-bar layers
  int64_t branches = 0;   // that ran the first d - d-bar layers of the next token meanwhile
  bool followed = false;  // the token that it gave is not its sequence's last
  bool matched = false;   // that token was one of the branches
};

// Counts runs. Latency: d units, or d-bar where the run was resumed; the branches take the time of the last d - d-bar
// layers, which pass anyway. Compute: these, and d - d-bar for each branch. Predictions and matches are those of tokens
// that another follows: the only ones that can save something, l - 1 of a sequence of l. So with k branches for each
// token the units are ppd_cost() at the match rate counted, for every sequence; a decoder that leaves out branches that
// nothing could go on from uses less compute.
class PpdAccount {
 public:
  // d-bar in d/2 .. d, else std::logic_error.
  PpdAccount(int64_t layers, int64_t early_layer);

  // d - d-bar: the layers that branches run.
  int64_t ahead() const { return layers_ - early_layer_; }
  // Adds to latency_units, compute_units, layer_runs, early_predictions and early_matches.
  void count(const PpdTally& run, DecodeStats& stats) const;

 private:
  int64_t layers_;
  int64_t early_layer_;
};

}  // namespace draftsmith::infer
