// Counts and times of an output as JSON, of `draftsmith generate --json` and the Python module.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "infer/loop/decode_stats.h"

namespace draftsmith::infer {

// Returns the counts and seconds. Counts that the method does not make are absent, and so is alpha unless `with_alpha`.
nlohmann::ordered_json stats_json(const DecodeStats& stats, bool with_alpha);

}  // namespace draftsmith::infer
