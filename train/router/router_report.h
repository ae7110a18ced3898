// How good a router is (train/router/router_training.h): how well it ranks positions.
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

// Returns a router_report.json as lines of text. `where` names it in messages. Errors: UserError for missing keys and
// other types.
std::string router_report_text(const nlohmann::json& report, const std::string& where);

}  // namespace draftsmith::train
