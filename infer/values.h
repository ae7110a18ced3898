// Small operations on values that measurements, summaries and reports share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

namespace draftsmith::infer {

// The upper one of two; `values` must not be empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// JSON knows no NaN and no infinity: what was not counted is null.
inline nlohmann::ordered_json finite_or_null(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

// Whether one of a batch's flags is set.
inline bool any(const std::vector<int64_t>& flags) {
  return std::any_of(flags.begin(), flags.end(), [](int64_t flag) { return flag != 0; });
}

// Appends what is not there yet.
template <class T>
void add_new(std::vector<T>& values, const T& value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

}  // namespace draftsmith::infer
