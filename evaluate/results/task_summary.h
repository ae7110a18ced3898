// From records to the numbers of results.json: quality with intervals, speed, acceptance, prediction, checks.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "evaluate/results/measured_task.h"

namespace draftsmith::evaluate {

// Fills hypotheses and statistics from the records.
void score_hypotheses(MeasuredTask& measured, const Engine& engine);

// Where a row's hypotheses lie, relative to results.json.
std::string hypotheses_file(const TaskOptions& task, const SettingRow& row);

// Candidates of one group on a choosing task.
std::vector<Candidate> candidates_of(const MeasuredTask& measured, const std::vector<Setting>& runs);

// The task's object of results.json.
nlohmann::ordered_json summarize_task(const MeasuredTask& measured, const SuiteOptions& options, Engine& engine);

}  // namespace draftsmith::evaluate
