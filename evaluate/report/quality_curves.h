// Quality against latency, as BiLD's Figure 7 (Kim et al. 2023) shows it: the points of one method's grid, and the line
// through those that no other of them beats in both.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace draftsmith::evaluate {

// Inline SVG of one task: to the right latency relative to greedy decoding of the target, upwards quality; the greedy
// baseline with lines at its quality and one point below. A colour for each group of runs. Empty unless some group has
// several points.
std::string quality_curves_svg(const nlohmann::ordered_json& task, const std::string& score);

}  // namespace draftsmith::evaluate
