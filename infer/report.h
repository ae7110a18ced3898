// The report of an evaluation: one self-contained HTML page with tables and inline SVG plots.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace draftsmith::infer {

// `results` is what results.json holds.
std::string report_html(const nlohmann::ordered_json& results);

// Text with the characters escaped that mean something in HTML.
std::string escape_html(const std::string& text);

}  // namespace draftsmith::infer
