#include "train/router/router_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace draftsmith::train {

double weighted_auc(std::span<const float> scores, std::span<const float> labels) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  double negative_below = 0;  // mass of negatives with lower scores
  double positive = 0;
  double area = 0;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    double here_positive = 0;
    double here_negative = 0;
    for (; end < order.size() && scores[order[end]] == scores[order[begin]]; ++end) {
      here_positive += static_cast<double>(labels[order[end]]);
      here_negative += 1 - static_cast<double>(labels[order[end]]);
    }
    area += here_positive * (negative_below + here_negative / 2);
    negative_below += here_negative;
    positive += here_positive;
    begin = end;
  }
  const double pairs = positive * negative_below;
  return pairs > 0 ? area / pairs : std::numeric_limits<double>::quiet_NaN();
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
