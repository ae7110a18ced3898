// Choosing settings on one task (validation data) for use on others: the fastest one whose loss of quality is allowed.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace draftsmith::evaluate {

// What the choosing task says of one setting.
struct Candidate {
  std::string label;
  double quality = 0;
  double speedup = 0;
};

struct Choice {
  std::string label;    // of the chosen setting
  std::string task;     // where it was chosen
  double max_drop = 0;  // points
  double drop = 0;      // points lost there; negative: gained
  double speedup = 0;   // measured there
  bool allowed = true;  // false: no setting lost so little, this one lost least
};

// The fastest candidate that loses at most `max_drop` points of size `point` against `baseline_quality`; if there is
// none, the one with the best quality. Nothing for no candidates.
std::optional<Choice> choose(const std::vector<Candidate>& candidates, double baseline_quality, double point,
                             double max_drop);

}  // namespace draftsmith::evaluate
