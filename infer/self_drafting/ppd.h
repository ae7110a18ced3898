// Layer-units of predictive pipelined decoding, counted as in Theorem 4.1 (Yang et al. 2024): a unit is one layer run
// for one token.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aten.h"
#include "infer/loop/decode_settings.h"
#include "infer/loop/decode_stats.h"
#include "infer/loop/rows.h"
#include "model/models/exits.h"

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

// Predictive pipelined decoding (Yang et al. 2024, algorithm 2): exact, greedily and by sampling (appendix B). Layer
// d-bar predicts k candidates for the token after token t. Before t runs through its last d - d-bar layers, a branch
// for each candidate runs the first d - d-bar layers, all branches as one pass. The branch of the actual next token
// continues from there; the others are dropped. The next token is always chosen from the last layer, so the candidates
// change no output. The paper runs branches and last layers at the same time, on several devices (ppd_account.h).

struct PpdSettings {
  int64_t early_layer = 0;  // d-bar, d/2 .. d-1
  int64_t candidates = 3;   // k
};

// Returns the k most likely tokens of each row of logits [B,V], in falling order; fewer if others are ruled out (-inf
// or NaN).
std::vector<std::vector<int64_t>> most_likely_tokens(const at::Tensor& logits, int64_t k);

// Decodes every row to its end, greedily or by sampling, with the tokens and random numbers of decode_plainly(). Writes
// layer_runs, early_predictions, early_matches, latency_units and compute_units of the rows' statistics
// (ppd_account.h). Without `exits` (nullptr) the model's final norm and head read layer d-bar. Candidates that end a
// row have no branch, nor have rows with one token left. Errors: std::logic_error for settings out of range, which the
// generator checks before.
void decode_ppd(model::TransformerModel& target, const model::Exits* exits, const PpdSettings& ppd,
                const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer);

}  // namespace draftsmith::infer
