#include "infer/costs/step_times.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/util.h"

namespace draftsmith::infer {

double StepCosts::drafting(double steps) const {
  const double last = std::floor(steps);
  const auto seconds = [this](double count) {
    const auto measured = static_cast<double>(drafts.size());
    if (count < 1 || drafts.empty()) return count * draft;
    return drafts[static_cast<size_t>(std::min(count, measured)) - 1] + std::max(count - measured, 0.0) * draft;
  };
  return seconds(last) + (steps - last) * (seconds(last + 1) - seconds(last));
}

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

void RoundTimes::add(int64_t tokens, double drafting, double verifying) {
  const auto place = static_cast<size_t>(tokens - 1);
  verifying_.resize(std::max(verifying_.size(), place + 1));
  drafting_.resize(verifying_.size());
  verifying_[place].push_back(verifying);
  if (tokens > 1) drafting_[place].push_back(drafting);
}

StepCosts RoundTimes::medians() const {
  StepCosts costs;
  std::vector<double> one;  // draft step, the mean of each round
  for (size_t place = 0; place < verifying_.size(); ++place) {
    costs.target.push_back(median(verifying_[place]));
    if (place == 0) continue;
    costs.drafts.push_back(median(drafting_[place]));
    for (const double seconds : drafting_[place]) one.push_back(seconds / static_cast<double>(place));
  }
  costs.draft = one.empty() ? 0 : median(one);
  return costs;
}

}  // namespace draftsmith::infer
