#include "infer/costs/step_times.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace draftsmith::infer {

double StepCosts::relative_target(double tokens) const {
  if (target.size() < 2) return 1;
  const double position = std::max(tokens - 1, 0.0);
  const auto below = std::min(static_cast<size_t>(position), target.size() - 2);
  const double share = position - static_cast<double>(below);
  const double slope = target[below + 1] - target[below];
  // A curve that falls at its end is noise, not a promise: continued, it would fall below zero.
  if (share > 1) return (target.back() + (share - 1) * std::max(slope, 0.0)) / target[0];
  return (target[below] + share * slope) / target[0];
}

}  // namespace draftsmith::infer
