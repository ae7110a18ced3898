#include "evaluate/suite/choice.h"

#include <algorithm>

namespace draftsmith::evaluate {

std::optional<Choice> choose(const std::vector<Candidate>& candidates, double baseline_quality, double point,
                             double max_drop) {
  if (candidates.empty()) return std::nullopt;
  const auto drop = [&](const Candidate& candidate) { return (baseline_quality - candidate.quality) / point; };
  const Candidate* best = nullptr;
  for (const Candidate& candidate : candidates) {
    if (drop(candidate) > max_drop) continue;
    if (best == nullptr || candidate.speedup > best->speedup) best = &candidate;
  }
  const bool allowed = best != nullptr;
  if (!allowed) {
    best = &*std::max_element(candidates.begin(), candidates.end(),
                              [](const Candidate& a, const Candidate& b) { return a.quality < b.quality; });
  }
  return Choice{.label = best->label,
                .task = {},
                .max_drop = max_drop,
                .drop = drop(*best),
                .speedup = best->speedup,
                .allowed = allowed};
}

}  // namespace draftsmith::evaluate
