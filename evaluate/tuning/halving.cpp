#include "evaluate/tuning/halving.h"

#include <algorithm>
#include <functional>
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

std::vector<std::string> kept(const std::vector<Contender>& contenders, double max_drop, size_t count) {
  const auto ordered = [&](double Contender::*drop) {
    std::vector<Contender> order = contenders;
    std::ranges::stable_sort(order, [&](const Contender& a, const Contender& b) {
      return comes_before(a, b, {a.*drop <= max_drop, b.*drop <= max_drop});
    });
    return order;
  };
  const std::vector<Contender> measured = ordered(&Contender::drop);
  const std::vector<Contender> hopeful = ordered(&Contender::least_drop);
  std::vector<std::string> labels;
  const auto keep = [&](const Contender& one) {
    const bool known = std::ranges::find(labels, one.label) != labels.end();
    if (labels.size() < count && !known) labels.push_back(one.label);
  };
  for (size_t i = 0; i < contenders.size(); ++i) {
    keep(measured[i]);
    if (i == 0) keep(*std::ranges::min_element(contenders, {}, &Contender::drop));
    keep(hopeful[i]);
  }
  return labels;
}

std::vector<std::string> ruled_out(const std::vector<Prospect>& settings, size_t fewest) {
  std::vector<Prospect> order = settings;
  std::ranges::stable_sort(order, std::ranges::greater{}, &Prospect::predicted);
  std::vector<std::string> labels;
  for (size_t i = fewest; i < order.size(); ++i) {
    if (order[i].predicted < kWideMargin * order.front().predicted) labels.push_back(order[i].label);
  }
  return labels;
}

std::vector<std::string> brought_back(const std::vector<Prospect>& waiting, const std::vector<Prospect>& measured) {
  std::vector<std::string> labels;
  const auto error_of = [](const Prospect& one) { return one.gain / one.predicted; };
  const auto [worst, best] = std::ranges::minmax_element(measured, {}, error_of);
  const auto fastest = std::ranges::max_element(measured, {}, &Prospect::gain);
  for (const Prospect& one : waiting) {
    const bool hopeless = !measured.empty() && one.predicted * error_of(*best) / error_of(*worst) < fastest->predicted;
    if (!hopeless) labels.push_back(one.label);
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
