// The tokens that PPD begins with before it knows which one it is.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aten.h"

namespace draftsmith::infer {

// The k most likely tokens of each row of logits [B,V], fewer where others are ruled out (-inf or NaN): [B].
std::vector<std::vector<int64_t>> most_likely_tokens(const at::Tensor& logits, int64_t k);

}  // namespace draftsmith::infer
