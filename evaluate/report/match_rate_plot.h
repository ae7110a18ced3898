// Heat maps of match rates (infer/forced/match_rates.h) as inline SVG.
#pragma once

#include <span>
#include <string>

#include "infer/forced/match_rates.h"

namespace draftsmith::evaluate {

// Of one decoding: a panel for each k, layers from top to bottom and positions to the right, the model's own head
// beside the trained one. Each cell says its percentage; empty without cells.
std::string match_rate_svg(std::span<const infer::MatchRate> rates, const std::string& decoding);

}  // namespace draftsmith::evaluate
