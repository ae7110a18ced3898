// Predictive pipelined decoding (Yang et al. 2024, algorithm 2): greedy and exact. While token t runs through its last
// d - d-bar layers, branches for the k tokens that layer d-bar predicts as t + 1 run the first d - d-bar layers; the
// branch of the token that it turns out to be goes on from there, the others are dropped.
#pragma once

#include "infer/inside/ppd_sides.h"
#include "infer/loop/decode_loop.h"
#include "model/kinds/exits.h"

namespace draftsmith::infer {

// What `auto` means on a device: the fastest of those that run there, as bench/ppd_execution.cpp measured them. On two
// cores batched took 1.2 to 1.7 of greedy decoding's time and threads 1.4 to 2.5: a side alone on one core has half of
// the cores and of the memory's speed. GPUs were not measured: batched there, too.
PpdExecution fastest_execution(at::Device device);

struct PpdSettings {
  int64_t early_layer = 0;  // d-bar, d/2 .. d-1
  int64_t candidates = 3;   // k
  PpdExecution execution = PpdExecution::kBatched;
};

// Decodes every row to its end. Writes layer_runs, early_predictions, early_matches, latency_units and compute_units of
// the rows' statistics (ppd_account.h). `exits` may be nullptr: layer d-bar is read by the model's final norm and head.
// Temperature 0 only. Candidates that end a row and rows with one token left have no branches. Settings out of range
// throw std::logic_error: checking options is the generator's.
void decode_ppd(model::TransformerModel& target, const model::Exits* exits, const PpdSettings& ppd,
                const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer);

}  // namespace draftsmith::infer
