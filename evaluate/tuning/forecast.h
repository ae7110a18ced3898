// Speeds that theory predicts for settings before a grid is measured: theorem 3.8 of Leviathan et al. (2023), with the
// acceptance rate and the step times of a few lines (evaluate/theory/formulas.h).
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "evaluate/engine/engine.h"
#include "evaluate/tuning/rung.h"

namespace draftsmith::evaluate {

// Predicted speedups of decoding, by the settings' labels.
using Forecast = std::map<std::string, double>;

// Returns whether theory predicts the setting's speed: it has windows of constant length, gives the target's output
// exactly, decodes lines one by one, and decodes greedily or from the whole distribution at temperature 1.
bool is_predictable(const Setting& setting, int64_t batch_size);

// Predicts the predictable settings of the request on its lines: the target decodes the lines once for each sampling,
// and each drafter reads the outputs in one pass. Settings whose drafter fails have no prediction. The predictions are
// kept in `directory`, so that a search that goes on measures the same settings.
Forecast forecast(const RungRequest& request, const std::filesystem::path& directory, Engine& engine);

}  // namespace draftsmith::evaluate
