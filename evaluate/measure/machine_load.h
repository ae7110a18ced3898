// Other processes on the machine: how much of the processors they use, how much slower rows became, and waiting until
// they are done.
#pragma once

#include <functional>
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

// Reads the processors' times after so many seconds.
using TimesAfter = std::function<std::optional<ProcessorTimes>(double seconds)>;
std::optional<ProcessorTimes> times_after(double seconds);

// Waits until other processes use less than kDisturbingLoad for five seconds, or `minutes` are over. Returns their last
// load; nothing, at once, where the system does not tell. Errors: Interrupted.
std::optional<double> wait_for_idle(int minutes, const TimesAfter& times = times_after);

}  // namespace draftsmith::evaluate
