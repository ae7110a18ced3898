// What early exits look at to see whether a hidden state is finished (Schuster et al. 2022, section 3.5). Numbers come
// to the host: one transfer, whatever the number of rows.
#pragma once

#include <vector>

#include "base/aten.h"

namespace draftsmith::infer {

// Cosine similarity of each row of two hidden states [B,...], of equally many numbers, in [-1,1]; NaN where one of them
// is zero.
std::vector<double> cosine_similarities(const at::Tensor& a, const at::Tensor& b);

// Difference of the two largest probabilities at temperature 1 of each row of logits [B,V]; 1 where only one token is
// possible, NaN where there is no such distribution.
std::vector<double> top_two_margins(const at::Tensor& logits);

}  // namespace draftsmith::infer
