// From records to the numbers of results.json: quality with intervals, speed, acceptance, prediction, checks.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "infer/evaluation_choice.h"
#include "infer/evaluation_engine.h"
#include "infer/evaluation_measure.h"
#include "infer/evaluation_tasks.h"
#include "infer/forced_texts.h"

namespace draftsmith::infer {

// One line of a task's results: a setting, or one that was chosen elsewhere and stands under a name of its own.
struct RunRow {
  std::string label;
  RunSettings settings;  // settings.label names its records
  std::optional<Choice> choice;
};

// A task with everything measured on it.
struct MeasuredTask {
  const EvaluationTask* task = nullptr;
  bool chooses = false;  // validation data on which settings are chosen
  TaskData data;
  std::vector<Prompt> prompts;
  int64_t cut_sources = 0;
  int64_t max_new_tokens = 0;
  ForcedTexts forced_texts;  // of the first forced_lines lines
  std::vector<RunRow> rows;  // the greedy baseline first
  TaskRecords records;
  std::map<std::string, std::vector<std::string>> hypotheses;  // by records' label, as scored and written
  std::map<std::string, LineStatistics> statistics;            // by records' label
  // By RunSettings::drafting(): what drafts, for which model.
  std::map<std::string, std::string> drafted_for;  // the model, "target" or a drafter's name
  std::map<std::string, StepCosts> costs;
  std::map<std::string, ForcedAlphas> forced;     // on that model's greedy outputs
  std::map<std::string, ForcedAlphas> predicted;  // on forced_texts
  std::map<std::string, LayerTimes> ppd_times;    // by records' label

  // Of the run's own model; for runs that compares_with_own_greedy() is true of, and those of the target.
  const RunRecords& own_greedy(const RunSettings& run) const;
};

// Fills hypotheses and statistics from the records.
void score_hypotheses(MeasuredTask& measured, const EvaluationEngine& engine);

// Where a row's hypotheses lie, relative to results.json.
std::string hypotheses_file(const EvaluationTask& task, const RunRow& row);

// Candidates of one group on a choosing task.
std::vector<Candidate> candidates_of(const MeasuredTask& measured, const std::vector<RunSettings>& runs);

// The task's object of results.json.
nlohmann::ordered_json summarize_task(const MeasuredTask& measured, const EvaluationOptions& options,
                                      EvaluationEngine& engine);

}  // namespace draftsmith::infer
