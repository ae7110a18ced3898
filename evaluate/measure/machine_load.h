// Other processes on the machine: how much of the processors they use, and how much slower rows became.
#pragma once

#include <optional>

#include "base/environment.h"
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

}  // namespace draftsmith::evaluate
