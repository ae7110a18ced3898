// Results of the drafters of a task.
#include "evaluate/results/drafter_summary.h"

#include <gtest/gtest.h>

namespace draftsmith::evaluate {
namespace {

// A drafter for the target, which decodes with its own first layers as well.
MeasuredTask task_with_a_model_that_also_drafts() {
  MeasuredTask measured;
  measured.drafted_for = {{"small", "target"}, {"small/exit2", "small"}, {"tiny", "target"}};
  measured.predicted["small"] = {0.7, 0.6, 9, {0.8, 1.25}, {0.5, 2.5}};
  measured.predicted["small/exit2"] = {0.6, 0.5, 9, {0.5, 2.5}, {0.4, 3.5}};
  measured.predicted["tiny"] = {0.3, 0.2, 9, {0.8, 1.25}, {0.1, 4.5}};
  return measured;
}

TEST(DrafterSummary, AModelThatDecodesAndDraftsStandsOnce) {
  const TaskPrediction prediction = task_prediction(task_with_a_model_that_also_drafts());
  std::vector<std::string> names;
  for (const auto& [name, model] : prediction.models) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"target", "small", "small/exit2", "tiny"}));
  EXPECT_EQ(prediction.models.at(0).second.cross_entropy, 1.25);
  EXPECT_FALSE(prediction.models.at(0).second.relative_accuracy.has_value());
  EXPECT_EQ(prediction.models.at(1).second.cross_entropy, 2.5);
  EXPECT_EQ(prediction.models.at(1).second.relative_accuracy, 0.7);  // what it says as a drafter
  EXPECT_EQ(prediction.positions, 9);
}

}  // namespace
}  // namespace draftsmith::evaluate
