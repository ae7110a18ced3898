// Which kinds of steps are recorded.
#include "model/transformer/step_graphs.h"

#include <gtest/gtest.h>

namespace draftsmith::model {
namespace {

TEST(StepGraphs, RecordFromTheSecondStepOfAKindOn) {
  StepGraphs graphs;
  EXPECT_EQ(graphs.find({.rows = 1, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}}), nullptr);
  EXPECT_NE(graphs.find({.rows = 1, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}}), nullptr);
  EXPECT_EQ(graphs.find({.rows = 1, .tokens = 2, .logits = Logits::kAll, .hidden_layers = {}}), nullptr);
  graphs.clear();
  EXPECT_EQ(graphs.find({.rows = 1, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}}), nullptr);
}

// Outputs of recorded kinds have memory each.
TEST(StepGraphs, ForgetTheKindThatWasNeededLeastRecently) {
  StepGraphs graphs;
  graphs.find({.rows = 1, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}});
  StepGraph* kept = graphs.find({.rows = 1, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}});
  for (int64_t rows = 2; rows < 200; ++rows) {
    graphs.find({.rows = rows, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}});
    ASSERT_EQ(graphs.find({.rows = 1, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}}), kept);
  }
  EXPECT_NE(graphs.find({.rows = 199, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}}), nullptr);
  EXPECT_EQ(graphs.find({.rows = 2, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}}), nullptr);
}

}  // namespace
}  // namespace draftsmith::model
