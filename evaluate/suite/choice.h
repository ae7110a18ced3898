// Choice of a setting on one task (validation data) for use on others: the fastest with an allowed loss of quality.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace draftsmith::evaluate {

// Setting that may be chosen, with its loss and speed on the choosing task.
struct Candidate {
  std::string label;
  double drop = 0;  // points lost against the baseline; negative: gained
  double speedup = 0;
};

struct Choice {
  std::string label;    // label of the chosen setting
  std::string task;     // choosing task
  double max_drop = 0;  // points
  double drop = 0;      // points lost on the choosing task; negative: gained
  double speedup = 0;   // speedup on the choosing task
  bool allowed = true;  // false: every setting lost more than max_drop, this one lost least
};

// Returns the fastest candidate that loses at most `max_drop` points, or, if all lose more, the one that loses least.
// Returns nothing for no candidates.
std::optional<Choice> choose(const std::vector<Candidate>& candidates, double max_drop);

}  // namespace draftsmith::evaluate
