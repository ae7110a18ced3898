// How well each drafter predicts, teacher-forced on a task's references: the measures of Nair et al. 2024, Table 1
// (methods.md §3), out of results.json.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace draftsmith::evaluate {

// A task's table for the console; empty without such measures.
std::string prediction_table(const nlohmann::ordered_json& task);

// The same for the report.
std::string prediction_section(const nlohmann::ordered_json& task);

}  // namespace draftsmith::evaluate
