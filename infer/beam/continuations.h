// The best continuations of running beams by one token each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aten.h"
#include "infer/beam/hypotheses.h"

namespace draftsmith::infer {

// Returns the `count` best continuations of each source, best first, one source after the other. log_probs [R,V] are
// those of the next token, the `beams` rows of a source one after the other; scores [R] are those of the beams so far.
// Sums are rounded as log_probs are (fp32 or fp64). A source with a NaN has a NaN as its first score. Errors:
// std::logic_error if a source has fewer continuations than `count`.
std::vector<Continuation> best_continuations(const at::Tensor& log_probs, std::span<const double> scores, int64_t beams,
                                             int64_t count);

}  // namespace draftsmith::infer
