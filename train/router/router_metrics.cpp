#include "train/router/router_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "metrics/resampling.h"

namespace draftsmith::train {

Ranking::Ranking(std::span<const float> scores) : order_(scores.size()) {
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  for (size_t i = 1; i <= order_.size(); ++i) {
    if (i == order_.size() || scores[order_[i]] != scores[order_[i - 1]]) ends_.push_back(i);
  }
}

double Ranking::auc(std::span<const float> labels, std::span<const int32_t> counts) const {
  double negative_below = 0;  // mass of negatives with lower scores
  double positive = 0;
  double area = 0;
  size_t i = 0;
  for (const size_t end : ends_) {
    double here_positive = 0;
    double here_negative = 0;
    for (; i < end; ++i) {
      const size_t item = order_[i];
      const double count = counts.empty() ? 1 : counts[item];
      here_positive += count * static_cast<double>(labels[item]);
      here_negative += count * (1 - static_cast<double>(labels[item]));
    }
    area += here_positive * (negative_below + here_negative / 2);
    negative_below += here_negative;
    positive += here_positive;
  }
  const double pairs = positive * negative_below;
  return pairs > 0 ? area / pairs : std::numeric_limits<double>::quiet_NaN();
}

double weighted_auc(std::span<const float> scores, std::span<const float> labels) {
  return Ranking(scores).auc(labels);
}

AucGain auc_gain(const ComparedScores& compared, uint64_t seed) {
  constexpr int64_t kResamples = 1000;
  constexpr double kConfidence = 0.95;
  const Ranking score(compared.score);
  const Ranking baseline(compared.baseline);
  const auto gain = [&](std::span<const int32_t> counts) {
    return score.auc(compared.labels, counts) - baseline.auc(compared.labels, counts);
  };
  std::vector<int32_t> sources(compared.sources.begin(), compared.sources.end());
  std::sort(sources.begin(), sources.end());
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  std::vector<size_t> source_of_item;
  for (const int32_t source : compared.sources) {
    source_of_item.push_back(
        static_cast<size_t>(std::lower_bound(sources.begin(), sources.end(), source) - sources.begin()));
  }
  RandomSequence random{CounterRandom(seed, "router/gain")};
  std::vector<double> gains;
  std::vector<int32_t> counts(source_of_item.size());
  for (int64_t resample = 0; resample < kResamples; ++resample) {
    std::vector<int32_t> drawn(sources.size(), 0);
    for (size_t i = 0; i < sources.size(); ++i) ++drawn[static_cast<size_t>(random.below(sources.size()))];
    for (size_t i = 0; i < counts.size(); ++i) counts[i] = drawn[source_of_item[i]];
    const double value = gain(counts);
    if (std::isfinite(value)) gains.push_back(value);
  }
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (gains.empty()) return {kNone, kNone, kNone};
  const metrics::Interval interval = metrics::percentile_interval(gains, kConfidence);
  return {gain({}), interval.low, interval.high};
}

std::vector<ReliabilityBin> reliability(const RouterPredictions& predictions, int64_t bins) {
  std::vector<ReliabilityBin> result(static_cast<size_t>(bins));
  const double width = 1.0 / static_cast<double>(bins);
  for (size_t b = 0; b < result.size(); ++b) {
    result[b].low = static_cast<double>(b) * width;
    result[b].high = static_cast<double>(b + 1) * width;
  }
  for (size_t i = 0; i < predictions.predicted.size(); ++i) {
    const auto predicted = static_cast<double>(predictions.predicted[i]);
    const auto index = std::clamp<int64_t>(static_cast<int64_t>(predicted / width), 0, bins - 1);
    ReliabilityBin& bin = result[static_cast<size_t>(index)];
    ++bin.count;
    bin.predicted += predicted;
    bin.disagreement += static_cast<double>(predictions.disagreement[i]);
    bin.rejected += predictions.rejected[i];
  }
  for (ReliabilityBin& bin : result) {
    if (bin.count == 0) continue;
    const auto count = static_cast<double>(bin.count);
    bin.predicted /= count;
    bin.disagreement /= count;
    bin.rejected /= count;
  }
  return result;
}

double calibration_error(const std::vector<ReliabilityBin>& bins, double ReliabilityBin::*truth) {
  double sum = 0;
  double count = 0;
  for (const ReliabilityBin& bin : bins) {
    sum += static_cast<double>(bin.count) * std::abs(bin.predicted - bin.*truth);
    count += static_cast<double>(bin.count);
  }
  return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace draftsmith::train
