// The cached keys that the queries of a step attend to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace draftsmith::model {

// The slots of a cache row that each query (b, j) sees: the slots [0, prefix), where prefix = first[b] + j if growing,
// otherwise first[b]; with own_slot also slot first[b] + j (a sibling sees the prefix and itself).
struct VisibleKeys {
  std::vector<int64_t> cache_row;  // [B] row of the caches
  std::vector<int64_t> first;      // [B]
  std::vector<int64_t>
      queries;  // [B] relevant queries of a row's L; the output of the others is finite but unspecified
  bool growing = false;
  bool own_slot = false;

  int64_t prefix(size_t b, int64_t j) const { return first[b] + (growing ? j : 0); }
  // Returns the position of query (b, j) when slots are positions.
  int64_t position(size_t b, int64_t j) const { return growing ? first[b] + j - 1 : first[b]; }
  // Returns one more than the highest slot that any relevant query sees.
  int64_t used(int64_t tokens) const;
};

}  // namespace draftsmith::model
