// Small statistics of measured values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace draftsmith {

// Returns the median, the upper one of two; `values` must not be empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns the smallest value that is no less than `share` (0..1) of all values; `values` must not be empty.
inline double quantile(std::vector<double> values, double share) {
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const size_t index = std::min(static_cast<size_t>(std::max(rank, 1.0)), values.size()) - 1;
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

// Middle and width of measured values.
struct Spread {
  double median = 0;
  double low = 0;   // the 10th percentile
  double high = 0;  // the 90th
};

// Returns the spread of values, of which there must be at least one.
inline Spread spread_of(const std::vector<double>& values) {
  return {median(values), quantile(values, 0.1), quantile(values, 0.9)};
}

}  // namespace draftsmith
