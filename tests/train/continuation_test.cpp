// A run that continues another one: the same bits as one run, where the settings are the same; errors where they must
// be.
#include <csignal>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/signals.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/train/poisoned_trainable.h"
#include "tests/train/untimed_log.h"
#include "train/training_checkpoint.h"

namespace draftsmith::train {
namespace {

class ContinuedRun : public testing::Test {
 protected:
  void SetUp() override {
    write_reversal_corpus(folder_ / "train.h5", 100, 1);
    write_reversal_corpus(folder_ / "validation.h5", 20, 2);
  }

  static TrainOptions steps(const std::string& length) {
    TrainOptions options = tiny_options();
    options.schedule = {};
    options.length = length;
    options.log_every = 1;
    options.validation.every = "3 steps";
    return options;
  }

  TrainResult run(const std::string& name, const TrainOptions& options, const std::string& parent = "",
                  const std::string& corpus_file = "train.h5") const {
    model::TransformerModel model(tiny_config(), parent.empty() ? 5 : 6);  // other weights, which the parent's replace
    const data::Corpus corpus(folder_ / corpus_file), validation(folder_ / "validation.h5");
    PlainTrainable trainable(model);
    TrainerInputs inputs{.trainable = trainable, .corpus = corpus, .validation = &validation};
    if (!parent.empty()) inputs.continue_from = folder_ / parent;
    return Trainer(std::move(inputs), options, folder_ / name).run();
  }

  std::string refused(const TrainOptions& options, const std::string& corpus_file = "train.h5") const {
    return error_of([&] { run("refused", options, "parent", corpus_file); });
  }

  std::vector<nlohmann::json> log(const std::string& name) const { return untimed_log(folder_ / name); }

  void expect_same(const std::string& one, const std::string& other) const {
    for (const char* file : {"model/model.safetensors", "best/model.safetensors",
                             "checkpoints/last/model/model.safetensors", "checkpoints/last/optimizer.safetensors"}) {
      EXPECT_TRUE(read_file(folder_ / one / file) == read_file(folder_ / other / file)) << file << " differs";
    }
    EXPECT_EQ(log(one), log(other));
  }

  TemporaryDirectory folder_;
};

TEST_F(ContinuedRun, ThreeStepsContinuedToSixAreSixAtOnce) {
  run("whole", steps("6 steps"));
  run("parent", steps("3 steps"));
  const TrainResult result = run("child", steps("6 steps"), "parent");
  EXPECT_EQ(result.state.step, 6);
  expect_same("child", "whole");
}

// Over an epoch's end: the order of data and dropout go on where they were.
TEST_F(ContinuedRun, EpochsGoOn) {
  TrainOptions options = steps("2 epochs");
  options.validation.every = "1 epochs";
  run("whole", options);
  options.length = "1 epochs";
  run("parent", options);
  options.length = "2 epochs";
  run("child", options, "parent");
  expect_same("child", "whole");
}

TEST_F(ContinuedRun, ARunThatWasContinuedIsContinuedAgainAndResumed) {
  run("whole", steps("9 steps"));
  run("first", steps("3 steps"));
  run("second", steps("6 steps"), "first");
  for (int64_t stop = 0; stop < 2; ++stop) {
    const SignalWatch watch;
    raise(SIGTERM);
    EXPECT_THROW(run("third", steps("9 steps"), "second"), Interrupted);
  }
  EXPECT_EQ(log("third").back().at("step"), 8);
  run("third", steps("9 steps"), "second");
  expect_same("third", "whole");
}

TEST_F(ContinuedRun, AFailedRunGoesOnFromItsLastCheckpoint) {
  const data::Corpus corpus(folder_ / "train.h5");
  const auto train = [&](const std::string& name, const TrainOptions& options, const std::string& parent) {
    model::TransformerModel model(tiny_config(), 5);
    PoisonedTrainable trainable(model, 1);
    TrainerInputs inputs{.trainable = trainable, .corpus = corpus};
    if (!parent.empty()) inputs.continue_from = folder_ / parent;
    return Trainer(std::move(inputs), options, folder_ / name).run();
  };
  TrainOptions options = steps("3 epochs");
  options.checkpoint_every = "1 steps";
  EXPECT_THROW(train("failed", options, ""), RunError);
  options.nonfinite = "skip";
  const TrainResult whole = train("whole", options, "");
  ASSERT_EQ(whole.state.skipped, 3);
  const TrainResult mended = train("mended", options, "failed");
  EXPECT_EQ(mended.state.skipped, 3);
  EXPECT_EQ(read_file(mended.model / "model.safetensors"), read_file(whole.model / "model.safetensors"));
  EXPECT_EQ(log("mended"), log("whole"));
}

TEST_F(ContinuedRun, RateScheduleAndClippingMayDiffer) {
  run("parent", steps("3 steps"));
  TrainOptions options = steps("6 steps");
  options.optimizer.lr = 1e-4;
  options.schedule.name = "linear";
  options.clip_norm = 0.5;
  run("child", options, "parent");
  const double lr = log("child").at(5).at("lr");  // of step 5: the parent's three steps and a validation come before
  EXPECT_GT(lr, 0);
  EXPECT_LE(lr, 0.5 * 1e-4) << "the schedule is not over the new length";
}

TEST_F(ContinuedRun, OtherSettingsMustAgree) {
  run("parent", steps("3 steps"));
  TrainOptions options = steps("6 steps");
  options.batches.token_budget = 80;
  options.optimizer.weight_decay = 0.5;
  options.seed = 7;
  const std::string message = refused(options);
  for (const char* name : {"training.batches.token_budget", "training.optimizer.weight_decay", "training.seed",
                           "length, optimizer.lr, schedule, clip_norm"}) {
    EXPECT_NE(message.find(name), std::string::npos) << message;
  }
  EXPECT_EQ(message.find("training.length"), std::string::npos) << message;
}

// A checkpoint's JSON does not keep the order of keys.
TEST_F(ContinuedRun, ParameterGroupsThatAgreeAreNotRefused) {
  TrainOptions options = steps("3 steps");
  options.optimizer.groups = {{.parameters = "*.query.weight", .lr_factor = 0.5, .weight_decay_factor = 0}};
  run("parent", options);
  options.length = "6 steps";
  EXPECT_EQ(run("child", options, "parent").state.step, 6);
  options.optimizer.groups.front().lr_factor = 0.25;
  EXPECT_NE(refused(options).find("training.optimizer.groups: differs"), std::string::npos);
}

TEST_F(ContinuedRun, AnotherCorpusIsRefused) {
  run("parent", steps("3 steps"));
  write_reversal_corpus(folder_ / "other.h5", 100, 3);
  const std::string message = refused(steps("6 steps"), "other.h5");
  EXPECT_NE(message.find("tokens of the corpus"), std::string::npos) << message;
}

TEST_F(ContinuedRun, ALengthThatIsOverIsRefused) {
  run("parent", steps("3 steps"));
  const std::string message = refused(steps("3 steps"));
  EXPECT_NE(message.find("train.length"), std::string::npos) << message;
  EXPECT_NE(message.find("more than 3 steps"), std::string::npos) << message;
}

TEST_F(ContinuedRun, ADirectoryWithoutACheckpointIsRefused) {
  std::filesystem::create_directories(folder_ / "parent");
  const std::string message = refused(steps("3 steps"));
  EXPECT_NE(message.find("no training run to continue"), std::string::npos) << message;
}

TEST_F(ContinuedRun, TheBestModelIsKeptWhereValidationsAgreeOnly) {
  TrainOptions options = steps("3 steps");
  options.validation.every = "1 steps";
  run("parent", options);
  options.length = "5 steps";
  options.optimizer.lr = 1;  // spoils the model
  const TrainResult kept = run("child", options, "parent");
  ASSERT_LE(kept.state.best_step, 3);
  EXPECT_TRUE(read_file(kept.model / "model.safetensors") == read_file(folder_ / "parent/best/model.safetensors"));
  options.validation.max_examples = 10;
  EXPECT_GT(run("measured otherwise", options, "parent").state.best_step, 3);
}

TEST_F(ContinuedRun, AnExhaustedPatienceBeginsAnew) {
  TrainOptions options = steps("50 steps");
  options.optimizer.lr = 1;
  options.validation.every = "1 steps";
  options.validation.patience = 2;
  const TrainResult parent = run("parent", options);
  ASSERT_TRUE(parent.stopped_early);
  const TrainResult child = run("child", options, "parent");
  EXPECT_GE(child.state.step, parent.state.step + 2);
}

TEST_F(ContinuedRun, CheckpointsTellTheNumberOfThreads) {
  run("parent", steps("3 steps"));
  const StoredCheckpoint stored = read_checkpoint(folder_ / "parent" / "checkpoints" / "last");
  EXPECT_EQ(stored.record.threads, at::get_num_threads());
  EXPECT_EQ(stored.record.training.at("length"), "3 steps");
}

}  // namespace
}  // namespace draftsmith::train
