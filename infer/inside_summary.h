// What a run did inside its model, for results.json: layers that ran, where tokens left (CALM), what was predicted
// early and what the theorem says of it (PPD).
#pragma once

#include <nlohmann/json.hpp>

#include "infer/evaluation_records.h"
#include "infer/evaluation_runs.h"
#include "infer/ppd_simulation.h"

namespace draftsmith::infer {

// Of runs whose own model's layers draft, are left early or run ahead; empty for others:
//   layers, layer_runs_per_token     of the decoder; all runs, of tokens that were rejected or dropped too
//   path_per_token                   layers one after the other, which bound the time: a round of G tokens drafted with
//   n
//                                    of N layers takes G n + N, for the last token too runs all; of calm the layer
//                                    runs; of ppd its latency units
//   exit_layer | average_exit_layer, exit_histogram (tokens by layer 1..N) | early_layer, candidates, match_rate,
//   early_predictions, compute_per_token, units_in_use
//   theorem                          ppd: Theorem 4.1 at the measured match rate, over outputs of these lengths
nlohmann::ordered_json inside_json(const RunSettings& run, const RunDepth& depth, const DecodeStats& stats,
                                   int64_t outputs);

// Mean length and setting of a ppd run, as its simulation wants them.
PpdSetting ppd_setting(const RunSettings& run, const RunDepth& depth, const DecodeStats& stats);

}  // namespace draftsmith::infer
