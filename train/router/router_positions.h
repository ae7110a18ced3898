// Positions that a router is trained and judged on: a selection of router data in memory, divided by source.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "data/router/router_data.h"
#include "model/kinds/router.h"

namespace draftsmith::train {

// Positions; values of one index belong together.
struct RouterPositions {
  model::RouterFeatures features;
  at::Tensor disagreement;  // fp32 [N]
  std::vector<int32_t> rejected;
  std::vector<int32_t> sources;

  int64_t size() const { return disagreement.numel(); }
  // Returns the features of the positions `rows` int64 [n].
  model::RouterFeatures at(const at::Tensor& rows) const;
};

// Indices of positions, by purpose.
struct RouterSplit {
  std::vector<int64_t> training;
  std::vector<int64_t> validation;
  std::vector<int64_t> test;
};

// Returns the chosen positions of the data with their first k tokens.
RouterPositions select_positions(const data::RouterData& data, const std::vector<int64_t>& chosen, int64_t k);

// Shares of the sources that are held out, in [0, 1).
struct RouterShares {
  double validation = 0;
  double test = 0;
};

// Divides the positions by source, so that no text is on two sides. A share above 0 holds one source at least, and the
// division depends on the seed alone. Errors: UserError if no source is left to train on.
RouterSplit split_by_source(const data::RouterData& data, const RouterShares& shares, uint64_t seed);

}  // namespace draftsmith::train
