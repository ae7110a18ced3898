// How good a router is (train/router/router_training.h): how well it ranks positions, and how true its probabilities
// are.
#pragma once

#include <span>
#include <string>

#include <nlohmann/json.hpp>

namespace draftsmith::train {

// Returns the area under the ROC curve for labels in [0,1]: the probability that a positive item has a higher score
// than a negative one, plus half the probability that they are equal. An item of label w counts w times as positive and
// 1 - w times as negative (also against itself). For labels 0 and 1 this is the usual AUC; for soft labels, its
// expectation over drawn labels, except for pairs of an item with itself. NaN without positive or without negative
// mass.
double weighted_auc(std::span<const float> scores, std::span<const float> labels);

struct RouterPredictions {
  std::span<const float> predicted;     // P(disagreement)
  std::span<const float> disagreement;  // soft target
  std::span<const float> rejected;      // 0 or 1
};

// Returns {"calibration_error", "calibration": ten bins of equal widths, each with count, mean prediction, mean
// disagreement and share of rejected tokens (0 in empty bins)}; predictions of 1 belong to the last bin. The error is
// the mean over positions of |predicted - disagreement| of their bins; null without positions.
nlohmann::ordered_json calibration(const RouterPredictions& predictions);

// Returns a router_report.json as lines of text. `where` names it in messages. Errors: UserError for missing keys and
// other types.
std::string router_report_text(const nlohmann::json& report, const std::string& where);

}  // namespace draftsmith::train
