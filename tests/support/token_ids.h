// Token ids of sources for models of at least 24 ids, and of what decoding gave.
#pragma once

#include <cstdint>
#include <vector>

#include "infer/generator.h"

namespace draftsmith::infer::testing {

// Returns sources of different lengths; of some, models with weights end their output early.
inline const std::vector<std::vector<int64_t>>& sources() {
  static const std::vector<std::vector<int64_t>> kVaried = {
      {5, 9, 14, 3, 1}, {7}, {}, {2, 1}, {11, 12, 13, 20, 21, 8, 1}, {1}, {22}, {6, 6, 17}, {9, 4, 2, 16, 1}};
  return kVaried;
}

// Returns the token ids alone.
inline std::vector<std::vector<int64_t>> ids_of(const std::vector<GenerationResult>& results) {
  std::vector<std::vector<int64_t>> ids;
  for (const GenerationResult& result : results) ids.push_back(result.ids);
  return ids;
}

}  // namespace draftsmith::infer::testing
