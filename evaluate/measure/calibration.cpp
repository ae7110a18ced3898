#include "evaluate/measure/calibration.h"

#include <algorithm>

#include "base/signals.h"
#include "evaluate/measure/failures.h"
#include "evaluate/measure/measurement_store.h"
#include "evaluate/measure/typical_lines.h"

namespace draftsmith::evaluate {

namespace {

// Measures the steps of a setting's drafter unless an earlier setting has.
void calibrate_setting(const Setting& setting, bool measures, int64_t longest, Engine& engine, MeasuredTask& task) {
  const std::string drafting = setting.drafter_label();
  const SettingRecords& greedy = task.own_greedy(setting);
  const std::vector<size_t> lines = typical_lines(greedy);
  if (lines.empty()) return;
  task.drafted_for[drafting] = setting.model;
  if (!measures || task.costs.contains(drafting)) return;
  std::vector<infer::StepCosts> measured;
  for (const size_t line : lines) {
    measured.push_back(engine.step_costs(setting, task.prompts[line], greedy[line].ids, longest + 1));
  }
  task.costs[drafting] = median_costs(measured);
}

}  // namespace

void calibrate(const SuiteOptions& options, Engine& engine, MeasuredTask& task) {
  int64_t longest = 1;
  for (const auto& row : task.rows) {
    const infer::DecodeOptions& decode = row.settings.decode;
    longest = std::max({longest, decode.window.value_or(10), decode.longest_draft()});
  }
  for (const auto& row : task.rows) {
    throw_if_stop_requested(kHowToGoOn);
    const Setting& setting = row.settings;
    if (setting.drafter_label().empty()) continue;
    const auto message = failure_of([&] { calibrate_setting(setting, options.calibrate, longest, engine, task); });
    if (message) task.failures.push_back({row.label, "step times", *message});
  }
}

}  // namespace draftsmith::evaluate
