// Steps whose loss or gradient is not finite: left out and counted, also by a run that is stopped and resumed.
#include <algorithm>
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/signals.h"
#include "tests/support/errors.h"
#include "tests/train/fixtures.h"

namespace draftsmith::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Poisoned examples: one, which is in one step of each epoch; and all.
constexpr int64_t kOne = 1, kAll = 24;

class NonfiniteSteps : public testing::Test {
 protected:
  void SetUp() override { write_reversal_corpus(folder_ / "train.h5", 24, 1); }

  // Trains a model whose output is NaN for examples below `poisoned`.
  TrainResult run(const std::string& name, const TrainOptions& options, int64_t poisoned) const {
    model::TransformerModel model(tiny_config(), 5);
    const data::Corpus corpus(folder_ / "train.h5");
    PoisonedTrainable trainable(model, poisoned);
    return Trainer(TrainerInputs{.trainable = trainable, .corpus = corpus}, options, folder_ / name).run();
  }

  static TrainOptions skipping() {
    TrainOptions options = tiny_options();
    options.nonfinite = "skip";
    options.batches.token_budget = 16;
    options.accumulate = 1;
    options.log_every = 1;
    return options;
  }

  std::vector<nlohmann::json> log(const std::string& name) const { return untimed_log(folder_ / name); }

  TemporaryDirectory folder_;
};

TEST_F(NonfiniteSteps, AreLeftOutAndCounted) {
  const TrainResult result = run("run", skipping(), kOne);
  EXPECT_EQ(result.state.skipped, 2);
  EXPECT_EQ(result.state.skipped_in_a_row, 0);
  EXPECT_EQ(result.state.examples, 48);
  const auto state = nlohmann::json::parse(read_file(folder_ / "run" / "checkpoints" / "last" / "state.json"));
  EXPECT_EQ(state.at("optimizer_steps"), result.state.step - 2);
  EXPECT_EQ(state.at("state").at("skipped"), 2);
  const auto lines = log("run");
  EXPECT_EQ(lines.back().at("skipped"), 2);
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(), [](const auto& line) { return line.at("loss").is_null(); }), 2);
}

TEST_F(NonfiniteSteps, LeaveTheWeightsAlone) {
  TrainOptions options = skipping();
  options.length = "2 steps";
  const TrainResult result = run("run", options, kAll);
  EXPECT_EQ(result.state.skipped, 2);
  const auto trained = model::load_model(result.model, {.pack = false});
  const model::TransformerModel fresh(tiny_config(), 5);
  EXPECT_EQ(differences(trained->parameters(), fresh.parameters(), 0), "");
}

TEST_F(NonfiniteSteps, AResumedRunSkipsTheSameSteps) {
  const TrainResult whole = run("whole", skipping(), kOne);
  for (int64_t stop = 0; stop < whole.state.step - 1; ++stop) {
    const SignalWatch watch;
    raise(SIGTERM);
    EXPECT_THROW(run("stopped", skipping(), kOne), Interrupted);
  }
  const TrainResult stopped = run("stopped", skipping(), kOne);
  EXPECT_EQ(stopped.state.skipped, 2);
  EXPECT_EQ(read_file(stopped.model / "model.safetensors"), read_file(whole.model / "model.safetensors"));
  EXPECT_EQ(log("stopped"), log("whole"));
}

// The last step alone would hide what happened between two lines of the log.
TEST_F(NonfiniteSteps, TheLogHasTheLargestNormAndTheShareOfClippedSteps) {
  TrainOptions each = skipping(), together = skipping();
  each.length = together.length = "6 steps";
  together.log_every = 6;
  each.clip_norm = together.clip_norm = 0;
  run("each", each, 0);
  std::vector<double> norms;
  for (const auto& line : log("each")) norms.push_back(line.at("gradient_norm"));
  ASSERT_EQ(norms.size(), 6u);
  run("together", together, 0);
  EXPECT_EQ(log("together").at(0).at("gradient_norm_max"), *std::max_element(norms.begin(), norms.end()));
  EXPECT_EQ(log("together").at(0).at("clipped"), 0);
  together.clip_norm = 1e-3;
  run("clipped", together, 0);
  EXPECT_EQ(log("clipped").at(0).at("clipped"), 1);
}

TEST_F(NonfiniteSteps, EndTheRunByDefaultOrWhereTheyAreTooManyInARow) {
  TrainOptions options = skipping();
  options.nonfinite_limit = 3;
  EXPECT_THAT(error_of<RunError>([&] { run("some", options, kAll); }),
              HasSubstr("training step 4, as in the 3 steps before it"));
  EXPECT_EQ(log("some").size(), 3u);
  options.nonfinite = TrainOptions().nonfinite;
  EXPECT_THAT(error_of<RunError>([&] { run("none", options, kAll); }),
              AllOf(HasSubstr("training step 1\n"), HasSubstr("train.h5"), HasSubstr("from the examples ")));
}

}  // namespace
}  // namespace draftsmith::train
