// How good a router is (train/router/router_training.h): how well it ranks positions, and how true its probabilities
// are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace draftsmith::train {

// Returns the area under the ROC curve for labels in [0,1]: the probability that a positive item has a higher score
// than a negative one, plus half the probability that they are equal. An item of label w counts w times as positive and
// 1 - w times as negative (also against itself). For labels 0 and 1 this is the usual AUC; for soft labels, its
// expectation over drawn labels, except for pairs of an item with itself. NaN without positive or without negative
// mass.
double weighted_auc(std::span<const float> scores, std::span<const float> labels);

// Positions whose predictions lie in one tenth of [0, 1].
struct ReliabilityBin {
  int64_t count = 0;
  double predicted = 0;     // mean prediction; 0 in empty bins
  double disagreement = 0;  // mean soft target
  double rejected = 0;      // share of drafted tokens that were rejected
};

struct RouterPredictions {
  std::span<const float> predicted;     // P(disagreement)
  std::span<const float> disagreement;  // soft target
  std::span<const float> rejected;      // 0 or 1
};

// Returns the bins of ten equal widths; predictions of 1 belong to the last.
std::vector<ReliabilityBin> reliability(const RouterPredictions& predictions);

// Returns the mean over positions of |predicted - disagreement| of their bins.
double calibration_error(const std::vector<ReliabilityBin>& bins);

// Measures on the test positions. Cross entropies are in nats per position.
struct RouterReport {
  int64_t training_positions = 0;
  int64_t validation_positions = 0;  // that chose the epoch
  int64_t test_positions = 0;        // that the measures are about; 0: those that chose the epoch
  int64_t epochs = 0;                // that were run
  int64_t best_epoch = 0;            // counted from 1
  double cross_entropy = 0;
  double constant_cross_entropy = 0;  // of always predicting the mean target: an upper bound for a useful router
  double least_cross_entropy = 0;     // of predicting each target itself: the lower bound
  double mean_disagreement = 0;
  double rejected = 0;  // share of drafted tokens
  // Ranking of positions by each score: against the token's rejection in decoding, and against the soft target.
  struct Auc {
    std::string score;  // router, entropy, max_probability (its complement)
    double rejected = 0;
    double disagreement = 0;
  };
  std::vector<Auc> auc;
  double calibration_error = 0;
  std::vector<ReliabilityBin> bins;
};

// Returns the report as router_report.json.
nlohmann::ordered_json to_json(const RouterReport& report);
// Returns a router_report.json as lines of text. `where` names it in messages. Errors: UserError for missing keys and
// other types.
std::string router_report_text(const nlohmann::json& report, const std::string& where);

}  // namespace draftsmith::train
