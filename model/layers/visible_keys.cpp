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

}  // namespace draftsmith::model
