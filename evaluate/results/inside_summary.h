// Results of what a setting did inside its own model: layers that ran, where tokens left (CALM), what was predicted
// early and what the theorem says of it (PPD).
#pragma once

#include <optional>

#include "evaluate/results/results.h"
#include "evaluate/suite/setting_grid.h"
#include "evaluate/theory/ppd_simulation.h"

namespace draftsmith::evaluate {

// Returns the results of a setting whose own model's layers draft, are left early or run ahead; nothing for others.
// `outputs` is the number of output sequences that `stats` sums over.
std::optional<Inside> inside_result(const Setting& setting, const LayerDepth& depth, const infer::DecodeStats& stats,
                                    int64_t outputs);

// Returns the layers, candidates and match rate of a ppd setting, as its simulation reads them.
PpdSetting ppd_setting(const Setting& setting, const LayerDepth& depth, const infer::DecodeStats& stats);

}  // namespace draftsmith::evaluate
