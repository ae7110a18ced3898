// Scores of a task's outputs: its metric's statistics of each line, for every setting.
#pragma once

#include "evaluate/engine/engine.h"
#include "evaluate/measure/measurement_store.h"
#include "evaluate/results/measured_task.h"
#include "metrics/metric.h"

namespace draftsmith::evaluate {

// Runs the command of a task's metric, if it is one, on the task's first two lines with references for hypotheses, so
// that a broken command is found before any model runs. Says first which command that is. Errors: UserError for a
// command that fails or answers wrongly; Interrupted.
void try_command(const MeasuredTask& measured);

// Makes hypotheses and statistics of every setting of a measured task. Equal outputs are scored once. What a command
// answered is kept in the store, so that an interrupted evaluation asks it no second time unless a script that it names
// was changed. A setting that cannot be
// scored loses its rows (remove_failed()), and all others are scored. Errors: Interrupted, and those of the greedy
// baseline.
void score_hypotheses(MeasuredTask& measured, const Engine& engine, MeasurementStore& store);

// Returns a metric's statistics of hypotheses for the task's first lines, with their references and sources.
metrics::LineStatistics statistics_of(const metrics::Metric& metric, const std::vector<std::string>& hypotheses,
                                      const TaskData& data);

}  // namespace draftsmith::evaluate
