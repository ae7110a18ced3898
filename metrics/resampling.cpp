#include "metrics/resampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "base/random.h"
#include "base/signals.h"

namespace draftsmith::metrics {
namespace {

// Returns the project's counter-based stream of a test.
RandomSequence draws_of(const ResamplingOptions& options, const char* stream) {
  return {CounterRandom(options.seed, stream)};
}

int64_t drawn_line(RandomSequence& draws, int64_t lines) {
  return static_cast<int64_t>(draws.below(static_cast<uint64_t>(lines)));
}

void add_line(const LineStatistics& statistics, int64_t line, std::vector<double>& sums) {
  const double* values = statistics.values.data() + line * statistics.width;
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

std::vector<double> zeros(const LineStatistics& statistics) {
  return std::vector<double>(static_cast<size_t>(statistics.width), 0.0);
}

// Tolerance for the last bits, in which resampled scores differ by the order of sums.
constexpr double kRounding = 1e-12;
constexpr double kConfidence = 0.95;  // of intervals

}  // namespace

std::span<const double> LineStatistics::line(int64_t index) const {
  return {values.data() + index * width, static_cast<size_t>(width)};
}

std::vector<double> LineStatistics::sum() const {
  auto sums = zeros(*this);
  for (int64_t i = 0; i < lines(); ++i) add_line(*this, i, sums);
  return sums;
}

double percentile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

Interval percentile_interval(std::vector<double>& values, double confidence) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double tail = (1 - confidence) / 2;
  return {percentile(values, tail), percentile(values, 1 - tail)};
}

Interval bootstrap_interval(const LineStatistics& statistics, const ScoreFunction& score,
                            const ResamplingOptions& options) {
  const int64_t lines = statistics.lines();
  if (lines == 0) return {};
  if (lines == 1) return {NAN, NAN};
  RandomSequence draws = draws_of(options, "metrics/bootstrap");
  std::vector<double> scores;
  scores.reserve(static_cast<size_t>(options.resamples));
  for (int64_t resample = 0; resample < options.resamples; ++resample) {
    work_point();
    auto sums = zeros(statistics);
    for (int64_t i = 0; i < lines; ++i) add_line(statistics, drawn_line(draws, lines), sums);
    scores.push_back(score(sums));
  }
  return percentile_interval(scores, kConfidence);
}

PairedTest paired_bootstrap(const LineStatistics& a, const LineStatistics& b, const ScoreFunction& score,
                            const ResamplingOptions& options) {
  if (a.width != b.width || a.values.size() != b.values.size()) {
    throw std::logic_error("paired test: the systems' statistics differ in shape");
  }
  PairedTest test{.score_b = score(b.sum())};
  test.difference = score(a.sum()) - test.score_b;
  const int64_t lines = a.lines();
  if (lines == 1) test.difference_interval = {NAN, NAN};
  if (lines < 2) return test;
  RandomSequence draws = draws_of(options, "metrics/paired_bootstrap");
  std::vector<double> differences;
  for (int64_t resample = 0; resample < options.resamples; ++resample) {
    work_point();
    auto sums_a = zeros(a);
    auto sums_b = zeros(b);
    for (int64_t i = 0; i < lines; ++i) {
      const int64_t line = drawn_line(draws, lines);
      add_line(a, line, sums_a);
      add_line(b, line, sums_b);
    }
    differences.push_back(score(sums_a) - score(sums_b));
  }
  const double mean =
      std::accumulate(differences.begin(), differences.end(), 0.0) / static_cast<double>(differences.size());
  const auto extreme = std::count_if(differences.begin(), differences.end(), [&](double difference) {
    return std::abs(difference - mean) >= std::abs(test.difference) - kRounding;
  });
  test.p_value = static_cast<double>(1 + extreme) / static_cast<double>(1 + options.resamples);
  test.difference_interval = percentile_interval(differences, kConfidence);
  return test;
}

}  // namespace draftsmith::metrics
