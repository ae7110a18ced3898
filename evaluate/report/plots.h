// Inline SVG plots of one task: quality against speedup, accepted lengths, time by phase. Each has its data as text too
// (titles of the marks), so that it can be read without colours.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace draftsmith::evaluate {

// Each run as a point: speedup to the right, quality upwards, both with their 95 % intervals.
std::string scatter_svg(const nlohmann::ordered_json& task, const std::string& score);

// One small histogram of accepted lengths for each run that drafts.
std::string histograms_svg(const nlohmann::ordered_json& task);

// One bar a run: milliseconds per token, split by phase.
std::string phases_svg(const nlohmann::ordered_json& task);

}  // namespace draftsmith::evaluate
