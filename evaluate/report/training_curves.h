// Losses of the training of a report's models, from the metrics that train stages write beside their models.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

struct TrainingCurve {
  std::string model;                                  // name in the suite
  std::vector<std::pair<double, double>> training;    // step and loss
  std::vector<std::pair<double, double>> validation;  // step and loss on validation data
};

// Returns the curves of the target and the drafters whose directories lie beside a metrics.jsonl. Lines that are no
// metrics are skipped; models without losses are left out.
std::vector<TrainingCurve> training_curves(const Results& results);

}  // namespace draftsmith::evaluate
