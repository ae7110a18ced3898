#include "model/layers/visible_keys.h"

#include <algorithm>

namespace draftsmith::model {

int64_t VisibleKeys::used(int64_t tokens) const {
  int64_t highest = 0;
  for (size_t b = 0; b < first.size(); ++b) {
    const int64_t last = std::min(queries[b], tokens) - 1;
    if (last >= 0) {
      highest = std::max(highest, own_slot ? first[b] + last + 1 : prefix(b, last));
    }
  }
  return highest;
}

bool VisibleKeys::all_see() const {
  return growing || own_slot || std::find(first.begin(), first.end(), 0) == first.end();
}

VisibleSlots slots_of(const VisibleKeys& visible, int64_t tokens) {
  const auto rows = std::ssize(visible.first);
  std::vector<int64_t> prefix;
  std::vector<int64_t> own;
  std::vector<int64_t> position;
  for (size_t b = 0; b < visible.first.size(); ++b) {
    for (int64_t j = 0; j < tokens; ++j) {
      prefix.push_back(visible.prefix(b, j));
      own.push_back(visible.first[b] + j);
      position.push_back(visible.position(b, j));
    }
  }
  const auto tensor = [&](const std::vector<int64_t>& values) {
    return at::tensor(values, at::kLong).view({rows, tokens});
  };
  return {at::tensor(visible.cache_row, at::kLong), tensor(prefix), visible.own_slot ? tensor(own) : at::Tensor(),
          tensor(position), visible.block};
}

}  // namespace draftsmith::model
