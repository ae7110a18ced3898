// What a grid over draft windows shows (SpecGame: how speculative can speculative decoding be?): for each method and
// drafter the latency by window K and the best K, as in the paper's Table 1 and its figures 4 to 7.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace draftsmith::evaluate {

// A row for each method and drafter that ran with several fixed windows: its fastest one, with how many times smaller
// than the target the drafter is, the speedup (total time), and milliseconds per token without encoder and prefill: as
// measured, the long-run latency and E_pt (evaluate/costs/theory.h). The fastest row of each method is marked. At most
// 100 columns; empty without such runs. `parameters` are the results' environment.parameters.
std::string window_table(const nlohmann::ordered_json& task, const nlohmann::ordered_json& parameters);

// The same as HTML, with plots of latency by window, one a method. Empty without such runs.
std::string window_section(const nlohmann::ordered_json& task, const nlohmann::ordered_json& parameters);

}  // namespace draftsmith::evaluate
