// Sums of a validation over predictions. Processes send them to each other as JSON; sums of several are equal to those
// of one process but for rounding.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

// Sums over one prediction, or over several together.
struct PredictionSums {
  int64_t layer = 0;  // that an exit reads
  double weight = 1;  // of its loss in the sum of losses
  double loss = 0;
  std::optional<double> overlap;  // where there is a teacher
  int64_t correct = 0;
  int64_t labels = 0;
  int64_t in_head = 0;  // labels that the model can give; the loss is over these

  void add(const Predictions& own, const std::optional<Predictions>& teacher);
  void add(const PredictionSums& other);
  void add(const nlohmann::json& part);  // of to_json(), from another process
  double mean_loss() const { return loss / static_cast<double>(std::max<int64_t>(1, in_head)); }
  double per_label(double sum) const { return sum / static_cast<double>(std::max<int64_t>(1, labels)); }
  double accuracy() const { return per_label(static_cast<double>(correct)); }
  std::optional<double> mean_overlap() const { return overlap ? std::optional(per_label(*overlap)) : std::nullopt; }
};

nlohmann::json to_json(const PredictionSums& sums);

// Returns the sum of the mean losses, each times its weight.
double weighted_loss(const std::vector<PredictionSums>& sums);

}  // namespace draftsmith::train
