// The report of an evaluation: one self-contained HTML page with tables and inline SVG plots.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace draftsmith::evaluate {

// `results` is what results.json holds.
std::string report_html(const nlohmann::ordered_json& results);

}  // namespace draftsmith::evaluate
