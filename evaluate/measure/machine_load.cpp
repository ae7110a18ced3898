#include "evaluate/measure/machine_load.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/logging.h"
#include "base/signals.h"
#include "base/timing.h"

namespace draftsmith::evaluate {

std::optional<double> other_load(const std::optional<ProcessorTimes>& before,
                                 const std::optional<ProcessorTimes>& now) {
  if (!before || !now || now->wall <= before->wall) return std::nullopt;
  const double others = (now->busy - before->busy) - (now->own - before->own);
  return std::clamp(others / ((now->wall - before->wall) * static_cast<double>(cpu_cores())), 0.0, 1.0);
}

std::optional<double> slowdown(const SettingRecords& records) {
  double median = 0, fastest = 0;
  for (const LineRecord& line : records) {
    if (line.repetitions.size() < 2) continue;
    median += line.median().total();
    fastest += std::ranges::min(line.repetitions, {}, &infer::PhaseSeconds::total).total();
  }
  return fastest > 0 ? std::optional(median / fastest) : std::nullopt;
}

std::optional<ProcessorTimes> times_after(double seconds) {
  for (const Stopwatch watch; watch.seconds() < seconds;) {
    work_point();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return processor_times();
}

std::optional<double> wait_for_idle(int minutes, const TimesAfter& times) {
  constexpr double kSpan = 5;  // seconds that a load is measured over
  Progress work({.title = "waiting for other processes"}, "nothing was measured");
  auto before = times(0);
  std::optional<double> load;
  for (double waited = 0; before && waited < 60 * minutes; waited += kSpan) {
    const auto now = times(kSpan);
    load = other_load(before, now);
    if (!load || *load < kDisturbingLoad) break;
    before = now;
  }
  return load;
}

}  // namespace draftsmith::evaluate
