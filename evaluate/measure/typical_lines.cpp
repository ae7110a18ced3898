#include "evaluate/measure/typical_lines.h"

#include <algorithm>
#include <stdexcept>

namespace draftsmith::evaluate {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<size_t> typical_lines(const SettingRecords& greedy) {
  std::vector<size_t> order;
  for (size_t line = 0; line < greedy.size(); ++line) {
    if (!greedy[line].ids.empty()) order.push_back(line);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return greedy[a].ids.size() < greedy[b].ids.size(); });
  std::vector<size_t> lines;
  for (const size_t quartile : {1, 2, 3}) {
    if (order.empty()) break;
    const size_t line = order[order.size() * quartile / 4];
    if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
  }
  return lines;
}

infer::StepCosts median_costs(std::span<const infer::StepCosts> measured) {
  if (measured.empty()) throw std::logic_error("median of no step times");
  infer::StepCosts costs;
  std::vector<double> draft;
  for (const infer::StepCosts& one : measured) draft.push_back(one.draft);
  costs.draft = median(draft);
  const auto medians = [&](std::vector<double> infer::StepCosts::*times) {
    std::vector<double> all;
    for (size_t i = 0; i < (measured.front().*times).size(); ++i) {
      std::vector<double> one;
      for (const infer::StepCosts& costs_of_line : measured) one.push_back((costs_of_line.*times).at(i));
      all.push_back(median(one));
    }
    return all;
  };
  costs.target = medians(&infer::StepCosts::target);
  costs.drafts = medians(&infer::StepCosts::drafts);
  return costs;
}

}  // namespace draftsmith::evaluate
