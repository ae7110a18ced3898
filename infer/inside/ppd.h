// Predictive pipelined decoding (Yang et al. 2024, algorithm 2): exact, greedily and by sampling (appendix B). Layer
// d-bar predicts k candidates for the token after token t. Before t runs through its last d - d-bar layers, a branch
// for each candidate runs the first d - d-bar layers, all branches as one pass. The branch of the actual next token
// continues from there; the others are dropped. The next token is always chosen from the last layer, so the candidates
// change no output. The paper runs branches and last layers at the same time, on several devices (ppd_account.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/aten.h"
#include "infer/loop/decode_settings.h"
#include "infer/loop/row_batch.h"
#include "model/kinds/exits.h"

namespace draftsmith::infer {

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
