// What a run did inside its model, for results.json: layers that ran, where tokens left (CALM), what was predicted
// early and what the theorem says of it (PPD).
#pragma once

#include <nlohmann/json.hpp>

#include "evaluate/costs/ppd_simulation.h"
#include "evaluate/measure/records.h"
#include "evaluate/suite/setting_grid.h"

namespace draftsmith::evaluate {

// Of runs whose own model's layers draft, are left early or run ahead; empty for others:
//   layers, layer_runs_per_token     of the decoder; all runs, of tokens that were rejected or dropped too
//   path_per_token                   layers one after the other, which bound the time: a round of G tokens drafted
//                                    with n of N layers takes G n + N, for the last token too runs all; of calm the
//                                    layer runs; of ppd its latency units
//   exit_layer | average_exit_layer, exit_histogram (tokens by layer 1..N) | early_layer, candidates, match_rate,
//   early_predictions, compute_per_token, units_in_use
//   theorem                          ppd: Theorem 4.1 at the measured match rate, over outputs of these lengths
nlohmann::ordered_json inside_json(const Setting& run, const LayerDepth& depth, const infer::DecodeStats& stats,
                                   int64_t outputs);

// Mean length and setting of a ppd run, as its simulation wants them.
PpdSetting ppd_setting(const Setting& run, const LayerDepth& depth, const infer::DecodeStats& stats);

}  // namespace draftsmith::evaluate
