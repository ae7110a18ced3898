#include "evaluate/tuning/halving.h"

#include <algorithm>
#include <stdexcept>

namespace draftsmith::evaluate {
namespace {

// Whether two contenders are within the budget.
struct Within {
  bool first;
  bool second;
};

bool comes_before(const Contender& a, const Contender& b, Within within) {
  if (within.first != within.second) return within.first;
  return within.first ? a.gain > b.gain : a.drop < b.drop;
}

}  // namespace

std::vector<int64_t> rung_lines(int64_t settings, int64_t lines, int64_t share, int64_t fewest) {
  if (share < 2) throw std::invalid_argument("a rung has at least twice the lines of the one before");
  std::vector<int64_t> rungs{lines};
  for (int64_t left = settings; left > share; left = (left + share - 1) / share) {
    const int64_t shorter = rungs.front() / share;
    if (shorter < std::max<int64_t>(fewest, 1)) break;
    rungs.insert(rungs.begin(), shorter);
  }
  return rungs;
}

std::vector<std::string> kept(std::vector<Contender> contenders, double max_drop, size_t count) {
  std::ranges::stable_sort(contenders, [&](const Contender& a, const Contender& b) {
    return comes_before(a, b, {a.least_drop <= max_drop, b.least_drop <= max_drop});
  });
  const auto safest = std::ranges::min_element(contenders, {}, &Contender::drop);
  std::vector<std::string> labels;
  for (const Contender& one : contenders) {
    if (labels.size() < count) labels.push_back(one.label);
  }
  if (safest != contenders.end() && !labels.empty() && std::ranges::find(labels, safest->label) == labels.end()) {
    labels.size() < 2 ? labels.push_back(safest->label) : void(labels.back() = safest->label);
  }
  return labels;
}

size_t winner(const std::vector<Contender>& contenders, double max_drop) {
  if (contenders.empty()) throw std::logic_error("no contenders");
  size_t best = 0;
  for (size_t i = 1; i < contenders.size(); ++i) {
    const Contender& one = contenders[i];
    const Contender& other = contenders[best];
    if (comes_before(one, other, {one.drop <= max_drop, other.drop <= max_drop})) best = i;
  }
  return best;
}

}  // namespace draftsmith::evaluate
