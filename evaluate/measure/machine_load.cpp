#include "evaluate/measure/machine_load.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include <fmt/format.h>

#include "base/signals.h"

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

std::optional<double> wait_for_idle(double minutes, const MachineWatch& machine, Progress& progress) {
  constexpr double kLook = 0.5;  // seconds between looks at signals
  constexpr double kSpan = 5;    // seconds that a load is measured over
  auto before = machine.times();
  if (!before) return std::nullopt;
  double waited = 0;
  for (double end = kSpan;; end += kSpan) {
    while (waited < end) {
      throw_if_stop_requested("nothing was measured");
      machine.sleep(kLook);
      waited += kLook;
      progress.set_underway(waited);
      progress.tick();
    }
    const auto now = machine.times();
    const auto load = other_load(before, now);
    if (!load || *load < kDisturbingLoad || waited >= 60 * minutes) return load;
    progress.set_note(fmt::format("others use {:.0f} % of the processors", 100 * *load));
    before = now;
  }
}

void wait_for_idle(double minutes, ProgressStyle style) {
  Progress progress({.style = style,
                     .title = "waiting for other processes",
                     .unit = "s",
                     .total = static_cast<int64_t>(std::ceil(60 * minutes))});
  const auto sleep = [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); };
  const auto load = wait_for_idle(minutes, {.sleep = sleep}, progress);
  progress.finish();
  if (!load) {
    log_warning("this system does not tell how busy it is (/proc/stat): nothing was waited for");
  } else if (*load < kDisturbingLoad) {
    log_info("other processes use {:.0f} % of the processors: the evaluation begins", 100 * *load);
  } else {
    log_warning("after {} other processes still use {:.0f} % of the processors: the evaluation begins anyway",
                human_duration(60 * minutes), 100 * *load);
  }
}

}  // namespace draftsmith::evaluate
