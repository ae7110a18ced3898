#include "evaluate/suite/choice.h"

#include <algorithm>

namespace draftsmith::evaluate {

std::optional<Choice> choose(const std::vector<Candidate>& candidates, double max_drop) {
  if (candidates.empty()) return std::nullopt;
  const Candidate* best = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.drop > max_drop) continue;
    if (best == nullptr || candidate.speedup > best->speedup) best = &candidate;
  }
  const bool allowed = best != nullptr;
  if (!allowed) {
    best = &*std::min_element(candidates.begin(), candidates.end(),
                              [](const Candidate& a, const Candidate& b) { return a.drop < b.drop; });
  }
  return Choice{.label = best->label,
                .task = {},
                .max_drop = max_drop,
                .drop = best->drop,
                .speedup = best->speedup,
                .allowed = allowed};
}

}  // namespace draftsmith::evaluate
