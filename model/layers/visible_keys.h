// Which cached keys the queries of a step attend to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace draftsmith::model {

// Which slots of which cache row each query (b, j) sees: the slots [0, prefix) with prefix = first[b] + j where
// growing, else first[b]; and with own_slot also slot first[b] + j (a sibling sees the prefix and itself).
struct VisibleKeys {
  std::vector<int64_t> cache_row;  // [B] row of the caches
  std::vector<int64_t> first;      // [B]
  std::vector<int64_t> queries;    // [B] how many of a row's L queries matter; the others' output is finite, no more
  bool growing = false;
  bool own_slot = false;

  int64_t prefix(size_t b, int64_t j) const { return first[b] + (growing ? j : 0); }
  // Position of query (b, j) when slots are positions.
  int64_t position(size_t b, int64_t j) const { return growing ? first[b] + j - 1 : first[b]; }
  // One more than the highest slot that a query that matters sees.
  int64_t used(int64_t tokens) const;
};

}  // namespace draftsmith::model
