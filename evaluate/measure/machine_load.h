// Other processes on the machine: how much of the processors they use, how much slower rows became, and waiting until
// they are done.
#pragma once

#include <functional>
#include <optional>

#include "base/environment.h"
#include "base/logging.h"
#include "evaluate/measure/measurement_store.h"

namespace draftsmith::evaluate {

// Share of the processors above which other processes disturb times.
inline constexpr double kDisturbingLoad = 0.1;

// Returns the share of the processors that other processes used between two readings, 0..1; nothing where the system
// does not tell.
std::optional<double> other_load(const std::optional<ProcessorTimes>& before, const std::optional<ProcessorTimes>& now);

// Returns how many times as long as in their fastest repetitions lines took in their median ones; nothing if none was
// timed twice.
std::optional<double> slowdown(const SettingRecords& records);

// The machine as wait_for_idle() sees it.
struct MachineWatch {
  std::function<std::optional<ProcessorTimes>()> times = processor_times;
  std::function<void(double seconds)> sleep;
};

// Waits until other processes use less than kDisturbingLoad for five seconds, or `minutes` are over, and says what it
// found. Errors: Interrupted.
void wait_for_idle(double minutes, ProgressStyle style);
// Does so with a machine of the caller's, for tests. Returns the load that it found.
std::optional<double> wait_for_idle(double minutes, const MachineWatch& machine, Progress& progress);

}  // namespace draftsmith::evaluate
