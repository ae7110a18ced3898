// Rows of an embedding table, with gradients by rows: those of a batch's ids, not of the whole vocabulary.
#pragma once

#include "base/aten.h"

namespace draftsmith::model {

// Returns the rows of `table` [V,D] that `ids` name, in the table's type. ids int64 [...] -> [..., D]. Where a leaf of
// fp32 on the CPU learns, the backward pass adds its rows to the table's gradient in place: no other gradient of the
// size of the table is made, but torch::autograd::grad() does not see it.
at::Tensor embedded(const at::Tensor& table, const at::Tensor& ids);

}  // namespace draftsmith::model
