#include "evaluate/measure/calibration.h"

#include <algorithm>

#include "base/signals.h"
#include "evaluate/measure/dealt_measurements.h"
#include "evaluate/measure/typical_lines.h"

namespace draftsmith::evaluate {

void calibrate(const SuiteOptions& options, Engine& engine, MeasuredTask& task) {
  int64_t longest = 1;
  for (const auto& row : task.rows) {
    const infer::DecodeOptions& decode = row.settings.decode;
    longest = std::max({longest, decode.window.value_or(10), decode.longest_draft()});
  }
  for (const auto& row : task.rows) {
    throw_if_stop_requested(kHowToGoOn);
    const Setting& setting = row.settings;
    const std::string drafting = setting.drafter_label();
    if (drafting.empty() && setting.algorithm() != infer::Algorithm::kPpd) continue;
    const SettingRecords& greedy = task.own_greedy(setting);
    const std::vector<size_t> lines = typical_lines(greedy);
    if (lines.empty()) continue;
    if (options.calibrate && setting.algorithm() == infer::Algorithm::kPpd) {
      const size_t middle = lines[lines.size() / 2];
      task.ppd_times[setting.label] = engine.ppd_times(setting, task.prompts[middle], greedy[middle].ids);
    }
    if (drafting.empty()) continue;
    task.drafted_for[drafting] = setting.model;
    if (!options.calibrate || task.costs.contains(drafting)) continue;
    std::vector<infer::StepCosts> measured;
    for (const size_t line : lines) {
      measured.push_back(engine.step_costs(setting, task.prompts[line], greedy[line].ids, longest + 1));
    }
    task.costs[drafting] = median_costs(measured);
  }
}

}  // namespace draftsmith::evaluate
