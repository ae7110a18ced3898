// Edits of TER (Snover et al. 2006) between two lists of words as sacreBLEU 2.6 counts them: the edit distance near the
// diagonal, after shifts of runs of words that lower it most, found greedily within Tercom's limits.
#pragma once

#include <cstdint>
#include <vector>

namespace draftsmith::metrics {

// Returns the insertions, deletions, substitutions and shifts that turn the hypothesis into the reference.
int64_t ter_edits(const std::vector<uint32_t>& hypothesis, const std::vector<uint32_t>& reference);

}  // namespace draftsmith::metrics
