// From measurements to results: scores of outputs, choices among settings, checks of what settings promise, and a
// summary of each task.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "evaluate/measure/measured_task.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// ---- Scores and choices (scoring.cpp)

// Runs the command of a task's metric, if it is one, on the first two lines with references for hypotheses, so that a
// broken one is found before any model runs. Errors: UserError for a command that fails or answers wrongly;
// Interrupted.
void try_command(const MeasuredTask& measured);

// Makes hypotheses and statistics of every setting of a measured task. Equal outputs are scored once. A setting that
// cannot be scored is removed, and all others are scored. Errors: Interrupted, and those of the greedy baseline.
void score_hypotheses(MeasuredTask& measured, const Engine& engine);

// Returns and logs what the metric warns of in the baseline's outputs and the references, if it does.
std::optional<std::string> metric_warning(const MeasuredTask& measured);

// Returns how a suite resamples lines.
metrics::ResamplingOptions resampling_of(const SuiteOptions& options);

// Returns the scores of line statistics, with the difference from a baseline's if there is one. Nothing for tasks that
// are not scored.
Quality quality_of(const metrics::Metric& metric, const metrics::LineStatistics& own,
                   const metrics::LineStatistics* baseline, const SuiteOptions& options);

// Decodes and scores the points of an engagement curve (infer/engagement.h): the oracle's before those of fallback, in
// the order of the thresholds. The large model alone is the task's greedy baseline, which is scored already.
EngagementResult measure_engagement(const EngagementTable& table, const MeasuredTask& task, const SuiteOptions& options,
                                    Engine& engine);

// Returns the fastest candidate that loses at most `max_drop` points, or, if all lose more, the one that loses least.
// Returns nothing for no candidates.
std::optional<ChosenSetting> choose(const std::vector<ChosenSetting>& candidates, double max_drop);

// Adds the settings that were chosen on the choosing tasks among `measured`. A group without a measured setting becomes
// a failure of the task.
void add_chosen(const std::vector<Setting>& settings, const std::vector<MeasuredTask>& measured, MeasuredTask& task);

// ---- Checks (checks.cpp)

// p-value below which a test fails. A suite with k tested settings fails by chance at most k times in a million.
constexpr double kFirstTokenAlarm = 1e-6;

// Returns the test of independent tokens. A token's place, before + u own with a uniform u, is uniform in [0, 1) if it
// was drawn as it must be, whatever the lines' distributions. The p-value 2 exp(-2 n D^2) of the Kolmogorov distance D
// bounds the true one for every number n of tokens (Massart 1990). `name` chooses the numbers u.
FirstTokenTest test_first_tokens(std::span<const TokenMass> tokens, uint64_t seed, const std::string& name);

// Returns the comparison of a setting at temperature 0 with greedy decoding of the same model. Where a lossless setting
// differs first, both tokens must be within a tolerance of the most likely one: a multiple of the logits' rounding.
Exactness check_exactness(const MeasuredTask& measured, const Setting& setting, Engine& engine);

// Returns the test of a sampled setting's first tokens. Nothing for settings that may change the distribution, and for
// records without first tokens.
std::optional<FirstTokenTest> check_first_tokens(const MeasuredTask& measured, const Setting& setting, uint64_t seed,
                                                 Engine& engine);

// Returns a problem for each failed check: settings and lines that failed, and lossless settings that are not. `file`
// is the results.json that messages name.
std::vector<Problem> failed_checks(const Results& results, const std::string& file);

// ---- Summary (summary.cpp)

// Returns what theory says of `speedup_decode` from alpha and step times, acceptances taken as independent; verifying
// takes the measured time of a (G+1)-token step, and `outputs` sequences of the mean length end within a window (0:
// they never end). Nothing for settings without a fixed window, and without drafts.
std::optional<PredictedSpeed> predicted_speed(const Setting& setting, const infer::DecodeStats& stats, int64_t outputs,
                                              const infer::StepCosts& costs);

// Returns the speedup if the counted runs of drafter and target took the measured step times; nothing without drafts.
// `greedy`: seconds of a token of the baseline, timed beside the setting; NaN: those of the measured step.
std::optional<PredictedSpeed> accounted_speed(const infer::DecodeStats& stats, const infer::StepCosts& costs,
                                              double greedy);

// Returns the results of the work inside a setting's own model: of settings whose own layers draft, are left early
// (CALM) or run ahead (PPD); nothing for others. `stats` sums over `outputs` output sequences.
std::optional<Inside> inside_result(const Setting& setting, const LayerDepth& depth, const infer::DecodeStats& stats,
                                    int64_t outputs);

// Returns the quality of the predictions of the task's models and drafters (evaluate/suite/tasks.h). A model that
// decodes and also drafts is listed once, as a drafter.
TaskPrediction task_prediction(const MeasuredTask& measured);

// Returns the file of a row's hypotheses, relative to results.json.
std::string hypotheses_file(const TaskOptions& task, const std::string& row);

// Returns the results of the task: quality with intervals, speed, acceptance, prediction, checks.
TaskResult summarize_task(const MeasuredTask& measured, const SuiteOptions& options, Engine& engine);

}  // namespace draftsmith::evaluate
