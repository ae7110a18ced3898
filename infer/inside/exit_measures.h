// Measures by which early exits decide whether a hidden state is finished (Schuster et al. 2022, section 3.5). Results
// come to the host in one transfer for all rows.
#pragma once

#include <vector>

#include "base/aten.h"

namespace draftsmith::infer {

// Returns the cosine similarity of each row of two hidden states [B,...] of the same size, in [-1,1]; NaN if one of
// them is zero.
std::vector<double> cosine_similarities(const at::Tensor& a, const at::Tensor& b);

// Returns the difference of the two largest probabilities at temperature 1 of each row of logits [B,V]; 1 if only one
// token is possible, NaN if the logits are no distribution.
std::vector<double> top_two_margins(const at::Tensor& logits);

}  // namespace draftsmith::infer
