// Measures of a predictor of disagreement: how well it ranks positions, and how true its probabilities are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace draftsmith::train {

// Items in the order of their scores.
class Ranking {
 public:
  explicit Ranking(std::span<const float> scores);
  // Returns the area under the ROC curve for labels in [0,1]: the probability that a positive item has a higher score
  // than a negative one, plus half the probability that they are equal. An item of label w counts w times as positive
  // and 1 - w times as negative (also against itself). For labels 0 and 1 this is the usual AUC; for soft labels, its
  // expectation over drawn labels, except for pairs of an item with itself. With `counts`, item i is there counts[i]
  // times. NaN without positive or without negative mass.
  double auc(std::span<const float> labels, std::span<const int32_t> counts = {}) const;

 private:
  std::vector<size_t> order_;  // by rising score
  std::vector<size_t> ends_;   // of items with equal scores in order_, rising
};

// Returns Ranking(scores).auc(labels).
double weighted_auc(std::span<const float> scores, std::span<const float> labels);

// A difference of AUCs with the limits of its 95 % bootstrap interval.
struct AucGain {
  double value = 0;
  double low = 0;
  double high = 0;
};

// Two scores of the same items, which come from sources (sentences).
struct ComparedScores {
  std::span<const float> score;
  std::span<const float> baseline;
  std::span<const float> labels;     // as in Ranking
  std::span<const int32_t> sources;  // items of a source have the same number
};

// Returns how much larger the score's AUC is than the baseline's. The interval is that of 1,000 resamples of sources,
// since the items of a sentence depend on each other. NaN where no AUC is defined. Depends on the seed alone.
AucGain auc_gain(const ComparedScores& compared, uint64_t seed);

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
