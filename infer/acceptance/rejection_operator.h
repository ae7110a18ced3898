// The decision of speculative sampling (Leviathan et al., Algorithm 1) in tensors: one launch on a GPU.
#pragma once

#include "infer/sampling/draws_gpu.h"

namespace draftsmith::infer {

// Keeps each row's leading tokens x with r < p(x)/q(x), and draws the token after them: from norm(max(0, p - q)) after
// a rejection, else from p.
Decided decide_by_rejection(const DraftedTokens& drafted);

}  // namespace draftsmith::infer
