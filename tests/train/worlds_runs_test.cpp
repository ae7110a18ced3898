// What surrounds the steps of a job of several processes: stops and another number of processes afterwards, validation,
// the end of training, steps that are not finite.
#include <csignal>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/captured_log.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/train/fp64_trainable.h"
#include "tests/train/poisoned_trainable.h"
#include "tests/train/trainable/exit_training_fixtures.h"
#include "tests/train/worlds_fixtures.h"
#include "train/validation.h"

namespace draftsmith::train {
namespace {

using testing::HasSubstr;
using testing_support::run_in_world;

class RunsInWorlds : public WorldRuns {};

TEST_F(RunsInWorlds, AJobOfThreeThatWasStoppedGoesOnWithOneOrTwoAsIfItHadNeverBeen) {
  validates_ = true;
  TrainOptions options = world_options();
  options.validation.every = "4 steps";
  options.keep = "last";
  const Ended whole = train_in(1, options, "whole", kept_in_fp64()).front();
  ASSERT_EQ(whole.error, "");
  constexpr uint64_t kMicroBatch = 41;  // of step 10: the third of its six, which process 2 makes
  for (const Ended& ended : train_in(3, options, "stopped by three", kept_in_fp64(kMicroBatch))) {
    EXPECT_THAT(ended.error, HasSubstr("training stopped after step 10"));
  }
  for (const int64_t size : {1, 2}) {
    SCOPED_TRACE("going on with " + std::to_string(size));
    const std::string run = "gone on with " + std::to_string(size);
    watch_.reset();
    watch_.emplace();  // which takes the request back
    std::filesystem::copy(folder_ / "stopped by three", folder_ / run,
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    for (const Ended& ended : train_in(size, options, run, kept_in_fp64({}, /*seed=*/8))) {
      EXPECT_EQ(ended.error, "");
      EXPECT_EQ(ended.state.step, kSteps);
      expect_same_weights(ended.weights, whole.weights);
    }
    expect_same_logs(folder_ / run, folder_ / "whole");
  }
}

TEST_F(RunsInWorlds, PatienceEndsAJobOfThreeAtTheStepAndWithTheBestModelOfOne) {
  validates_ = true;
  TrainOptions options = world_options();
  options.length = "60 steps";
  options.optimizer.lr = 0.03;
  options.schedule = {};
  options.validation.every = "2 steps";
  options.validation.patience = 1;
  options.keep = "best";
  const Ended alone = train_in(1, options, "one", kept_in_fp64()).front();
  EXPECT_TRUE(alone.stopped_early);
  EXPECT_LT(alone.state.step, 60);
  EXPECT_GT(alone.state.best_step, 2);
  for (const Ended& ended : train_in(3, options, "three", kept_in_fp64())) {
    EXPECT_TRUE(ended.stopped_early);
    EXPECT_EQ(ended.state.step, alone.state.step);
    EXPECT_EQ(ended.state.best_step, alone.state.best_step);
    expect_same_weights(ended.weights, alone.weights);
  }
  expect_same_logs(folder_ / "three", folder_ / "one");
  const auto best = model::load_model(folder_ / "three" / "best", {.dtype = at::kDouble, .pack = false});
  expect_same_weights(copy_of(*best), alone.weights);
}

// Trains a model whose outputs are NaN for some examples.
Trainee poisoned(int64_t examples) {
  return [examples](const Process& process) {
    const auto model = model::varied_model(tiny_config(), 5);
    PoisonedTrainable trainable(*model, examples);
    process.train(trainable);
  };
}

TEST_F(RunsInWorlds, ANanOfOneProcessEndsAllWithTheSameError) {
  const TrainOptions options = world_options();
  const std::string expected = train_in(1, options, "world of 1", poisoned(1)).front().error;
  EXPECT_THAT(expected, HasSubstr("the loss is not finite in training step"));
  EXPECT_THAT(expected, HasSubstr("from the examples "));
  for (const int64_t size : {2, 3, 4}) {
    for (const Ended& ended : train_in(size, options, "world of " + std::to_string(size), poisoned(1))) {
      EXPECT_EQ(ended.error, expected);
    }
  }
}

TEST_F(RunsInWorlds, ANanOfOneProcessIsSkippedByAll) {
  TrainOptions options = world_options();
  options.nonfinite = "skip";
  const CapturedLog log;
  const Ended alone = train_in(1, options, "world of 1", poisoned(1)).front();
  EXPECT_GT(alone.state.skipped, 1);
  EXPECT_LT(alone.state.skipped, kSteps / 2);
  for (const int64_t size : {2, 3, 4}) {
    SCOPED_TRACE("a world of " + std::to_string(size));
    const std::string run = "world of " + std::to_string(size);
    for (const Ended& ended : train_in(size, options, run, poisoned(1))) {
      EXPECT_EQ(ended.error, "");
      EXPECT_EQ(ended.state.skipped, alone.state.skipped);
      expect_same_weights(ended.weights, alone.weights);
    }
    expect_same_logs(folder_ / run, folder_ / "world of 1");
  }
  EXPECT_EQ(static_cast<int64_t>(log.warnings()), 4 * alone.state.skipped) << "each world warns once";
}

// Returns all measures of a validation.
nlohmann::json measures_of(const ValidationResult& result) {
  nlohmann::json json{{"loss", result.loss}, {"accuracy", result.accuracy}, {"labels", result.labels}};
  if (result.bleu) json["bleu"] = *result.bleu;
  if (result.overlap) json["overlap"] = *result.overlap;
  if (result.weighted_loss) json["weighted loss"] = *result.weighted_loss;
  if (result.drafts) {
    json["drafts"] = {result.drafts->alpha, result.drafts->tokens_per_target_run, result.drafts->alpha_forced,
                      result.drafts->agreement};
  }
  for (const auto& exit : result.exits) {
    json["exits"].push_back({exit.layer, exit.loss, exit.accuracy, exit.overlap.value_or(0)});
  }
  return json;
}

// Ids are words of one letter.
class LetterWords : public infer::testing::Letters {
 public:
  using infer::testing::Letters::Letters;
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += infer::testing::Letters::decode(std::span(&id, 1)) + " ";
    return text;
  }
};

class ValidationInWorlds : public WorldRuns {
 protected:
  using Validates = std::function<ValidationResult(const ValidationInputs&, const ValidationOptions&)>;

  // Expects the same measures in all processes of worlds of 1 to 4, with many batches and with fewer than processes.
  // Returns them.
  nlohmann::json expect_equal_measures(const Validates& validates) const {
    const data::Corpus corpus(folder_ / "validation.h5");
    const LetterWords tokenizer(kTestVocabulary, "none");
    nlohmann::json expected;
    for (const int64_t size : {1, 2, 3, 4}) {
      SCOPED_TRACE("a world of " + std::to_string(size));
      std::vector<nlohmann::json> found(static_cast<size_t>(size));
      run_in_world(size, [&](World& world) {
        const at::NoGradGuard no_grad;
        for (const int64_t token_budget : {30, 1000}) {
          found[static_cast<size_t>(world.rank())].push_back(measures_of(validates(
              {.corpus = &corpus, .tokenizer = &tokenizer, .world = &world}, {.token_budget = token_budget})));
        }
      });
      if (size == 1) expected = found.front();
      for (const nlohmann::json& own : found) {
        expect_same_json(own, expected, "measures");
        for (size_t i = 0; i < expected.size(); ++i) {
          for (const char* exact : {"bleu", "accuracy"})
            EXPECT_EQ(own[i].value(exact, -1.0), expected[i].value(exact, -1.0));
        }
      }
    }
    return expected.front();
  }
};

// The number of drafted sources is no multiple of the number of processes, or below it.
TEST_F(ValidationInWorlds, GivesEqualMeasuresOutputsAndDrafts) {
  for (const int64_t drafted : {8, 2}) {
    const nlohmann::json measures = expect_equal_measures([=](ValidationInputs inputs, ValidationOptions options) {
      const auto model = model::varied_model(tiny_config(), 5, at::kFloat);
      const auto target = model::varied_model(tiny_config(), 6, at::kFloat);
      PlainTrainable trainable(*model);
      inputs.teacher = target.get();
      options.bleu_examples = 39;
      options.draft_examples = drafted;
      options.draft_temperature = 1;
      options.max_new_tokens = 10;
      return validate(trainable, inputs, options);
    });
    for (const char* name : {"loss", "accuracy", "bleu", "overlap", "drafts"}) EXPECT_TRUE(measures.contains(name));
    EXPECT_GT(measures.at("bleu"), 0);
  }
}

TEST_F(ValidationInWorlds, GivesEqualMeasuresOfExits) {
  const auto config = exit_configs().front();
  const nlohmann::json measures = expect_equal_measures([&](ValidationInputs inputs, const ValidationOptions& options) {
    ExitPair pair(config, {.loss = "calm_weighted"}, at::kDouble);
    const auto teacher = model::varied_model(config, 9);
    inputs.teacher = teacher.get();
    return validate(pair.trainable, inputs, options);
  });
  EXPECT_EQ(measures.at("exits").size(), 2u);
  for (const char* name : {"weighted loss", "overlap"}) EXPECT_TRUE(measures.contains(name));
}

TEST_F(ValidationInWorlds, GivesEqualMeasuresOfHeads) {
  const auto config = exit_configs().front();
  const auto measures = expect_equal_measures([&](const ValidationInputs& inputs, const ValidationOptions& options) {
    HeadPair pair(config, {.layers = {1, 2}}, at::kDouble);
    vary(pair.heads, 5);
    return validate(pair.trainable, inputs, options);
  });
  EXPECT_EQ(measures.at("exits").size(), 2u);
  EXPECT_TRUE(measures.contains("overlap"));
}

}  // namespace
}  // namespace draftsmith::train
