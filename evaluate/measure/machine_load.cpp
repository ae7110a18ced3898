#include "evaluate/measure/machine_load.h"

#include <algorithm>

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

}  // namespace draftsmith::evaluate
