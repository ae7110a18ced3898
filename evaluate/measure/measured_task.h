// Measurements of one task of a suite, and the passes that make them: outputs and counts of every setting, drafters
// teacher-forced; in timing.cpp times in turns, and times of single steps (methods.md §3).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evaluate/engine/engine.h"
#include "evaluate/measure/measurement_store.h"
#include "evaluate/results/results.h"
#include "evaluate/suite/tasks.h"
#include "infer/costs/step_costs.h"

namespace draftsmith::evaluate {

// Task with everything measured on it.
struct MeasuredTask {
  const TaskOptions* task = nullptr;
  std::string key;       // name of the task with a hash of its options and data, which names measurements
  bool chooses = false;  // settings are chosen on this task (validation data)
  TaskData data;
  std::vector<Prompt> prompts;
  int64_t cut_sources = 0;
  int64_t max_new_tokens = 0;
  int64_t batch_size = 1;             // lines decoded together by settings without a batch size of their own
  ForcedTexts forced_texts;           // texts of the first forced_lines lines
  std::vector<Setting> settings;      // what is measured, the greedy baseline first
  std::vector<ChosenSetting> chosen;  // rows of the results for some of `settings`, under names of their own
  std::map<std::string, SettingRecords> records;               // by label, a record for each line
  std::vector<SettingFailure> failures;                        // settings that are missing for a failure, and parts
  std::map<std::string, std::vector<std::string>> hypotheses;  // by label, in the form that is scored and written
  std::map<std::string, metrics::LineStatistics> statistics;   // by label
  // The next ones are by Setting::drafter_label().
  std::map<std::string, std::string> drafted_for;              // model that decodes
  std::map<std::string, std::vector<infer::StepCosts>> costs;  // measurements, of which median_costs() counts
  std::map<std::string, infer::ForcedAlpha> forced;            // on greedy outputs of the model that decodes
  std::map<std::string, infer::ForcedAlpha> forced_sampled;    // on outputs that it sampled at temperature 1
  std::map<std::string, infer::ForcedAlpha> predicted;         // on forced_texts

  int64_t lines() const { return std::ssize(prompts); }
  int64_t batch_size_of(const Setting& setting) const { return setting.decode.batch_size.value_or(batch_size); }
  // Returns the prompts of a setting's batch that begins at a line.
  std::span<const Prompt> batch(const Setting& setting, int64_t first_line) const;
  // Returns the setting with that label, which must be there.
  const Setting& setting(const std::string& label) const;
  // Returns whether the setting has a row of its own. One that was chosen elsewhere has that of the choice alone.
  bool has_row(const Setting& setting) const { return chooses || setting.choose_on.empty(); }
  // Returns the greedy decoding of the setting's own model: with the setting's batches, if that was decoded. The
  // setting is one of the target, or compares_with_own_greedy() holds.
  const SettingRecords& own_greedy(const Setting& setting) const;
};

// Calls `work`. Returns what the exception that it threw says, in one line; nothing if it threw none. What fails is
// reported, and the evaluation goes on. Errors: Interrupted.
std::optional<std::string> failure_of(const std::function<void()>& work);

// Calls `work` of a setting. Its failure goes to `failed` (message by label); that of the greedy baseline is thrown,
// since all others are compared with it. Errors: Interrupted.
void try_setting(const Setting& setting, const std::string& during, const std::function<void()>& work,
                 std::map<std::string, std::string>& failed);

// Removes the settings, choices and records that `failed` (message by label), and settings that are compared with them.
// Adds all of them to task.failures.
void remove_failed(const std::map<std::string, std::string>& failed, const std::string& during, MeasuredTask& task);

// Returns the setting's label with a hash of method and parameters, which names its measurements.
std::string measured_name(const Setting& setting);

// Returns DecodeBatch::window of the batch that begins at `first_line`: what the batch before it carried on when it was
// counted, so that windows depend neither on turns nor on interruptions.
std::optional<int64_t> first_window(const Setting& setting, const SettingRecords& records, int64_t first_line);

// Decodes every line once with every setting, untimed, but for what the store has: task.records. A setting that fails
// is removed, and the others go on. Errors: Interrupted, and those of the greedy baseline.
void count_outputs(Engine& engine, MeasurementStore& store, MeasuredTask& task);

// Measures each drafter of the task's settings on the first forced_lines lines: task.forced on greedy outputs,
// task.forced_sampled on outputs sampled with the suite's seed, and task.predicted. A drafter that fails has an entry
// in task.failures instead. Nothing is measured where greedy decoding gives only empty outputs. Errors: Interrupted.
void measure_forced_alphas(const SuiteOptions& options, Engine& engine, MeasuredTask& task);

// Times the settings on the timed lines and adds the times to task.records. Each turn of a setting, some batches,
// stands beside a turn of its own baseline, before it or behind it, so that drifts of the machine affect both alike. A
// round is one such pair for each line; with SuiteOptions::precision settings that are precise take no part in the
// later ones. Finished turns are kept in the store. A setting that fails is removed. Errors: Interrupted, and those of
// the greedy baseline.
void time_settings(const SuiteOptions& options, Engine& engine, MeasurementStore& store, MeasuredTask& task);

// Measures the steps of the task's drafters on typical_lines(): task.costs, unless SuiteOptions::calibrate is off, and
// task.drafted_for. Called again it adds measurements. A drafter whose steps fail has an entry in task.failures
// instead. Errors: Interrupted.
void calibrate(const SuiteOptions& options, Engine& engine, MeasuredTask& task);

// Returns the lines whose outputs have the lengths of the quartiles, shortest first: up to three different ones, none
// with an empty output. Empty if all outputs are. The time of a step grows with the text before it.
std::vector<size_t> typical_lines(const SettingRecords& greedy);

// Returns the median of each time over measurements of equal widths. Errors: std::logic_error without any.
infer::StepCosts median_costs(std::span<const infer::StepCosts> measured);

}  // namespace draftsmith::evaluate
