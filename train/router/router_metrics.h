// Measures of a predictor of disagreement: how well it ranks positions, and how true its probabilities are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace draftsmith::train {

// Returns the area under the ROC curve of `scores` for labels in [0,1]: the probability that a positive item has a
// higher score than a negative one, plus half the probability that they are equal. An item of label w counts w times as
// positive and 1 - w times as negative (also against itself). For labels 0 and 1 this is the usual AUC; for soft
// labels, its expectation over drawn labels, except for pairs of an item with itself. NaN without positive or without
// negative mass.
double weighted_auc(std::span<const float> scores, std::span<const float> labels);

// Positions whose prediction lies in [low, high) (the last bin: up to 1 included).
struct ReliabilityBin {
  double low = 0;
  double high = 0;
  int64_t count = 0;
  double predicted = 0;     // mean prediction; 0 in empty bins
  double disagreement = 0;  // mean soft target
  double rejected = 0;      // share of drafted tokens that were rejected
};

struct RouterPredictions {
  std::span<const float> predicted;     // P(disagreement)
  std::span<const float> disagreement;  // soft target
  std::span<const int32_t> rejected;    // 0 or 1
};

// Returns `bins` bins of equal width.
std::vector<ReliabilityBin> reliability(const RouterPredictions& predictions, int64_t bins = 10);

// Returns the mean over positions of |predicted - truth| of their bins; `truth` is &ReliabilityBin::disagreement or
// ::rejected.
double calibration_error(const std::vector<ReliabilityBin>& bins, double ReliabilityBin::*truth);

}  // namespace draftsmith::train
