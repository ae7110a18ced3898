// Lists without repetitions.
#pragma once

#include <algorithm>
#include <vector>

namespace draftsmith {

// Appends `value` unless the list contains it.
template <class T>
void add_new(std::vector<T>& values, const T& value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

}  // namespace draftsmith
