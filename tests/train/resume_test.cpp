// Exact resume: runs that are killed or asked to stop end with the same bits as one that never stopped (CPU).
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "base/json.h"
#include "base/random.h"
#include "base/signals.h"
#include "data/corpus/corpus.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/train/fixtures.h"
#include "train/run_directory.h"

namespace draftsmith::train {
namespace {

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

TEST(ExactResume, WarnsIfTheProcessorNowMultipliesOtherwise) {
  const TemporaryDirectory folder;
  make_corpora(folder);
  TrainOptions options = resumed_options();
  train_tiny_validated(folder / "run", options);
  const auto state = folder / "run/checkpoints/last/state.json";
  nlohmann::json json = load_json(state);
  json["bf16"] = !json.at("bf16").get<bool>();
  write_file_atomic(state, json.dump());
  ::testing::internal::CaptureStderr();
  train_tiny_validated(folder / "run", options);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), testing::HasSubstr("the run multiplied in"));
}

// Counts the best models in the run's directory at each step.
class CountingBests : public PlainTrainable {
 public:
  CountingBests(model::TransformerModel& model, std::filesystem::path run)
      : PlainTrainable(model), run_(std::move(run)) {}
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override {
    const auto is_best = [](const auto& entry) { return entry.path().filename().string().starts_with("best-"); };
    most = std::max<int64_t>(most, std::ranges::count_if(std::filesystem::directory_iterator(run_), is_best));
    return PlainTrainable::forward(batch, dropout);
  }
  int64_t most = 0;

 private:
  std::filesystem::path run_;
};

TEST(ExactResume, KeepsTwoBestModelsHoweverFarApartCheckpointsAre) {
  const TemporaryDirectory folder;
  make_corpora(folder);
  TrainOptions options = resumed_options();
  options.length = "6 steps";
  options.checkpoint_every = "3 steps";
  options.validation.every = "1 steps";
  const data::Corpus corpus(folder / "train.h5"), validation(folder / "validation.h5");
  model::TransformerModel model(tiny_config(), 5);
  CountingBests trainable(model, folder / "run");
  run_training({.trainable = trainable, .corpus = corpus, .validation = {.corpus = &validation}}, options,
               folder / "run");
  EXPECT_EQ(trainable.most, 2) << "that of the checkpoint and the newest";
}

// Asks to stop at a micro-batch that takes more than a second: in its forward pass, or between that and the backward
// one.
class SlowTrainable : public PlainTrainable {
 public:
  SlowTrainable(model::TransformerModel& model, bool behind) : PlainTrainable(model), behind_(behind) {}
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override {
    const bool slow = dropout.step == 9;
    if (slow && !behind_) stop_slowly();
    TrainableOutput output = PlainTrainable::forward(batch, dropout);
    if (slow && behind_) stop_slowly();
    return output;
  }

 private:
  static void stop_slowly() {
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    request_stop(SIGTERM);
  }

  bool behind_;
};

TEST(ExactResume, ALongStepIsLeftAndDoneAgain) {
  const TemporaryDirectory folder;
  make_corpora(folder);
  TrainOptions options = resumed_options();
  options.length = "8 steps";  // of two micro-batches
  train_tiny_validated(folder / "whole", options);
  const data::Corpus corpus(folder / "train.h5"), validation(folder / "validation.h5");
  for (const bool behind : {false, true}) {
    const auto stopped = folder / (behind ? "behind" : "before");
    {
      const SignalWatch watch;
      model::TransformerModel model(tiny_config(), 5);
      SlowTrainable trainable(model, behind);
      EXPECT_THAT(error_of<Interrupted>([&] {
                    run_training({.trainable = trainable, .corpus = corpus, .validation = {.corpus = &validation}},
                                 options, stopped);
                  }),
                  testing::HasSubstr("training stopped after step 4"));
    }
    train_tiny_validated(stopped, options);
    expect_same_run(folder / "whole", stopped);
  }
}

class FailingTrainable : public PlainTrainable {
 public:
  using PlainTrainable::PlainTrainable;
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override {
    if (dropout.step == 9) throw std::runtime_error("the fifth step fails");
    return PlainTrainable::forward(batch, dropout);
  }
};

TEST(ExactResume, CheckpointsAreDueByTimeToo) {
  const TemporaryDirectory folder;
  make_corpora(folder);
  TrainOptions options = resumed_options();
  options.checkpoint_every = "1e-9 minutes";
  const data::Corpus corpus(folder / "train.h5");
  model::TransformerModel model(tiny_config(), 5);
  FailingTrainable trainable(model);
  EXPECT_THROW(run_training({.trainable = trainable, .corpus = corpus}, options, folder / "run"), std::runtime_error);
  EXPECT_EQ(std::filesystem::canonical(folder / "run/checkpoints/last").filename(), "step-000000004");
}

// What is beyond the resumed step is dropped; killed between a validation that was due and the next checkpoint, a run
// validates once more.
TEST(TrainingLog, HoldsNoStepAndNoValidationTwice) {
  const TemporaryDirectory folder;
  const std::string steps = "{\"step\":2}\n{\"step\":3,\"loss\":1}\n";
  const std::string validated = steps + "{\"step\":3,\"validation\":{\"loss\":1}}\n";
  const auto file = write_text(folder / "metrics.jsonl", validated + "{\"step\":4}\n{\"ste");
  truncate_metrics(file, 3);
  EXPECT_EQ(read_file(file), validated);
  truncate_metrics(file, 3, /*validated=*/false);
  EXPECT_EQ(read_file(file), steps);
}

}  // namespace
}  // namespace draftsmith::train
