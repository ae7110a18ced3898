#include "evaluate/measure/latency.h"

#include <algorithm>
#include <cmath>

namespace draftsmith::evaluate {
namespace {

double percentile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

Percentiles percentiles_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {percentile(values, 0.5), percentile(values, 0.95), percentile(values, 0.99)};
}

}  // namespace

Latency measure_latency(const SettingRecords& run) {
  std::vector<double> sentences;
  std::vector<double> tokens;
  for (const LineRecord& line : run) {
    if (line.repetitions.empty()) continue;
    sentences.push_back(1000 * line.latency());
    const auto outputs = std::max(1.0, static_cast<double>(line.first_tokens.size()));
    if (line.tokens() > 0) tokens.push_back(sentences.back() * outputs / static_cast<double>(line.tokens()));
  }
  return {percentiles_of(std::move(sentences)), percentiles_of(std::move(tokens))};
}

}  // namespace draftsmith::evaluate
