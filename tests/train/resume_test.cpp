// Exact resume: runs that are killed or asked to stop, and runs that continue another one, end with the same bits as
// one that never stopped (CPU); errors where a run cannot go on.
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "base/random.h"
#include "base/signals.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/train/fixtures.h"
#include "train/training_checkpoint.h"

namespace draftsmith::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kDirectoryVariable = "DRAFTSMITH_TEST_RUN_DIRECTORY";

TrainOptions resumed_options() {
  TrainOptions options = tiny_options();
  options.length = "60 steps";
  options.log_every = 1;
  options.validation.every = "7 steps";
  return options;
}

void make_corpora(const TemporaryDirectory& folder) {
  write_reversal_corpus(folder / "train.h5", 500, 1);
  write_reversal_corpus(folder / "validation.h5", 20, 2);
}

// The program that the kill test starts and kills: this one, with this test chosen.
TEST(TrainingWorker, DISABLED_TrainsWhereItIsTold) {
  const char* directory = std::getenv(kDirectoryVariable);
  ASSERT_NE(directory, nullptr);
  train_tiny_validated(directory, resumed_options());
}

pid_t start_worker(const std::filesystem::path& directory) {
  std::string variable = std::string(kDirectoryVariable) + "=" + directory.string();
  std::string threads = "OMP_NUM_THREADS=1";
  std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string filter = "--gtest_filter=TrainingWorker.*", disabled = "--gtest_also_run_disabled_tests";
  char* arguments[] = {program.data(), filter.data(), disabled.data(), nullptr};
  char* environment[] = {variable.data(), threads.data(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawn(&child, program.c_str(), &files, nullptr, arguments, environment);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) throw std::runtime_error("cannot start " + program);
  return child;
}

int64_t steps_logged(const std::filesystem::path& directory) {
  const auto file = directory / "metrics.jsonl";
  if (!std::filesystem::exists(file)) return 0;
  int64_t last = 0;
  for (const std::string& line : lines_of(read_file(file))) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object()) last = json.value("step", last);
  }
  return last;
}

// Kills the worker as soon as it has logged `step`. False when it ended by itself before.
bool kill_at(const std::filesystem::path& directory, int64_t step) {
  const pid_t child = start_worker(directory);
  int status = 0;
  while (steps_logged(directory) < step) {
    if (waitpid(child, &status, WNOHANG) == child) return false;
    std::this_thread::yield();
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return WIFSIGNALED(status);
}

TEST(ExactResume, KilledAtRandomStepsEndsWithTheSameBits) {
  const TemporaryDirectory folder;
  make_corpora(folder);
  // Workers train with one thread, and so must the run they are compared with.
  const pid_t uninterrupted = start_worker(folder / "whole");
  int status = 0;
  waitpid(uninterrupted, &status, 0);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);

  const CounterRandom random(std::random_device{}(), "kill");
  int kills = 0;
  int64_t step = 0;
  std::string steps;
  for (uint64_t i = 0; i < 3; ++i) {
    step += 1 + static_cast<int64_t>(random.below(i, 17));
    kills += kill_at(folder / "killed", step);
    steps += std::to_string(step) + " ";
  }
  SCOPED_TRACE("killed after steps " + steps);
  EXPECT_EQ(kills, 3);
  const pid_t last = start_worker(folder / "killed");
  waitpid(last, &status, 0);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(steps_logged(folder / "killed"), 60);
  expect_same_run(folder / "whole", folder / "killed");
}

// A pending stop does not wait for a validation: the run that goes on begins with it, even after the last step.
TEST(ExactResume, AskedToStopItSavesAndGoesOnWithTheSameBits) {
  const TemporaryDirectory folder;
  make_corpora(folder);
  for (const std::string length : {"1 steps", "20 steps"}) {
    SCOPED_TRACE(length);
    TrainOptions options = resumed_options();
    options.length = length;
    options.checkpoint_every = "";
    options.validation.every = "1 steps";
    const auto whole = folder / ("whole " + length), stopped = folder / ("stopped " + length);
    train_tiny_validated(whole, options);
    for (const int signal : {SIGTERM, SIGINT}) {
      const SignalWatch watch;
      raise(signal);
      try {
        train_tiny_validated(stopped, options);
        FAIL() << "the run did not stop";
      } catch (const Interrupted& interrupted) {
        EXPECT_EQ(interrupted.exit_code(), 128 + signal);
      }
      EXPECT_EQ(steps_logged(stopped), 1);
      EXPECT_EQ(read_file(stopped / "metrics.jsonl").find("validation"), std::string::npos);
    }
    train_tiny_validated(stopped, options);
    expect_same_run(whole, stopped);
  }
}

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
    PoisonedTrainable trainable(model, poisoned_);
    TrainerInputs inputs{.trainable = trainable, .corpus = corpus};
    if (poisoned_ == 0) inputs.validation = &validation;
    if (!parent.empty()) inputs.continue_from = folder_ / parent;
    return Trainer(std::move(inputs), options, folder_ / name).run();
  }

  std::string refused(const TrainOptions& options, const std::string& corpus_file = "train.h5") const {
    return error_of([&] { run("refused", options, "parent", corpus_file); });
  }

  std::vector<nlohmann::json> log(const std::string& name) const { return untimed_log(folder_ / name); }

  void expect_same(const std::string& one, const std::string& other) const {
    expect_same_run(folder_ / one, folder_ / other);
  }

  TemporaryDirectory folder_;
  int64_t poisoned_ = 0;  // examples; with some, runs do not validate
};

TEST_F(ContinuedRun, ARunThatWasContinuedIsContinuedAgainAndResumed) {
  ASSERT_GE(run("whole", steps("18 steps")).state.position.epoch, 1) << "data and dropout go on over an epoch's end";
  run("first", steps("3 steps"));
  run("second", steps("6 steps"), "first");
  for (int64_t stop = 0; stop < 2; ++stop) {
    const SignalWatch watch;
    raise(SIGTERM);
    EXPECT_THROW(run("third", steps("18 steps"), "second"), Interrupted);
  }
  EXPECT_EQ(log("third").back().at("step"), 8);
  run("third", steps("18 steps"), "second");
  expect_same("third", "whole");
}

TEST_F(ContinuedRun, AFailedRunGoesOnFromItsLastCheckpoint) {
  poisoned_ = 1;
  TrainOptions options = steps("3 epochs");
  options.checkpoint_every = "1 steps";
  EXPECT_THROW(run("failed", options), RunError);
  options.nonfinite = "skip";
  const TrainResult whole = run("whole", options), mended = run("mended", options, "failed");
  ASSERT_EQ(whole.state.skipped, 3);
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

TEST_F(ContinuedRun, WhatMustAgreeAndDoesNotIsRefused) {
  std::filesystem::create_directories(folder_ / "parent");
  EXPECT_THAT(refused(steps("3 steps")), HasSubstr("no training run to continue"));
  std::filesystem::remove(folder_ / "parent");
  TrainOptions options = steps("3 steps");
  options.optimizer.groups = {{.parameters = "*.query.weight", .lr_factor = 0.5, .weight_decay_factor = 0}};
  run("parent", options);
  const StoredCheckpoint stored = read_checkpoint(folder_ / "parent" / "checkpoints" / "last");
  EXPECT_EQ(stored.record.threads, at::get_num_threads());
  EXPECT_EQ(stored.record.training.at("length"), "3 steps");
  EXPECT_THAT(refused(options), AllOf(HasSubstr("train.length"), HasSubstr("more than 3 steps")));
  // A checkpoint's JSON does not keep the order of keys; groups that agree are not refused for it.
  options.length = "6 steps";
  EXPECT_EQ(run("child", options, "parent").state.step, 6);
  write_reversal_corpus(folder_ / "other.h5", 100, 3);
  EXPECT_THAT(refused(options, "other.h5"), HasSubstr("tokens of the corpus"));
  options.batches.token_budget = 80;
  options.optimizer.weight_decay = 0.5;
  options.optimizer.groups.front().lr_factor = 0.25;
  options.seed = 7;
  EXPECT_THAT(refused(options),
              AllOf(HasSubstr("training.batches.token_budget"), HasSubstr("training.optimizer.weight_decay"),
                    HasSubstr("training.seed"), HasSubstr("training.optimizer.groups: differs"),
                    HasSubstr("length, optimizer.lr, schedule, clip_norm"), Not(HasSubstr("training.length"))));
}

}  // namespace
}  // namespace draftsmith::train
