// Results of the work inside a setting's own model: layers that ran, exits of tokens (CALM), early predictions and
// their theorem (PPD).
#pragma once

#include <optional>

#include "evaluate/results/results.h"
#include "evaluate/suite/setting_grid.h"

namespace draftsmith::evaluate {

// Returns the results of a setting whose own model's layers draft, are left early or run ahead; nothing for others.
// `stats` sums over `outputs` output sequences.
std::optional<Inside> inside_result(const Setting& setting, const LayerDepth& depth, const infer::DecodeStats& stats,
                                    int64_t outputs);

}  // namespace draftsmith::evaluate
