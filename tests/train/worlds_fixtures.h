// Fixtures of the tests of jobs of several processes: runs in worlds of some sizes, and what must be equal in all.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/signals.h"
#include "tests/support/tensors.h"
#include "tests/support/worlds.h"
#include "tests/train/fixtures.h"
#include "tests/train/trainable/tandem_training_fixtures.h"
#include "tests/train/untimed_log.h"
#include "train/step_batches.h"

namespace draftsmith::train {

// Relative to the largest value of a tensor; runs are in fp64.
inline constexpr double kWorldTolerance = 1e-12;

// End of a run in one process.
struct Ended {
  Weights weights = {};
  TrainingState state = {};
  bool stopped_early = false;
  std::string error = {};  // empty: none
};

// One process of a job that trains.
struct Process {
  World& world;
  const data::Corpus& corpus;
  const data::Corpus* validation = nullptr;
  TrainOptions options;
  std::filesystem::path directory;  // the leader's
  std::filesystem::path continue_from;
  Ended& ended;

  // Only the leader's directory is the run's: nobody else may need it.
  void train(TrainableModel& trainable, TeacherSource* distilled = nullptr) const {
    const auto own = world.leads() ? directory : directory / ("of process " + std::to_string(world.rank()));
    try {
      const TrainResult result = Trainer({.trainable = trainable,
                                          .corpus = corpus,
                                          .validation = validation,
                                          .distilled = distilled,
                                          .continue_from = continue_from,
                                          .world = &world},
                                         options, own)
                                     .run();
      ended.state = result.state;
      ended.stopped_early = result.stopped_early;
    } catch (const Error& error) {
      ended.error = error.what();
    }
    for (const auto& [name, value] : trainable.parameters()) ended.weights[name] = value.detach().clone();
    EXPECT_EQ(std::filesystem::exists(own), world.leads());
  }
};

// Makes models of its own, and trains them as the process wants.
using Trainee = std::function<void(const Process&)>;

// Returns whether two numbers are equal to the tolerance; a number that is not finite equals none.
inline bool agree(double a, double b, double scale) {
  return std::abs(a - b) <= kWorldTolerance * scale;
}

// Expects equal weights. Returns the largest difference, relative to the largest value of its tensor.
inline double expect_same_weights(const Weights& found, const Weights& expected) {
  double most = 0;
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, value] : expected) {
    EXPECT_EQ(value.scalar_type(), at::kDouble) << name;
    const auto same = found.find(name);
    const double apart = same == found.end() ? INFINITY : difference(same->second, value);
    EXPECT_TRUE(agree(apart, 0, largest(value))) << name << " by " << apart << " of " << largest(value);
    most = std::max(most, apart / std::max(largest(value), 1e-300));
  }
  return most;
}

inline void expect_same_json(const nlohmann::json& found, const nlohmann::json& expected, const std::string& place) {
  if (expected.is_structured() && found.type() == expected.type() && found.size() == expected.size()) {
    for (const auto& [key, value] : expected.items()) {
      const bool has = expected.is_array() || found.contains(key);
      EXPECT_TRUE(has) << place << "/" << key;
      if (has) expect_same_json(expected.is_array() ? found[std::stoul(key)] : found[key], value, place + "/" + key);
    }
  } else if (expected.is_number_float() && found.is_number_float()) {
    EXPECT_TRUE(agree(found, expected, std::abs(expected.get<double>()))) << place << ": " << found << ", " << expected;
  } else {
    EXPECT_EQ(found, expected) << place;
  }
}

// Returns the lines of a run's log without what differs from job to job.
inline std::vector<nlohmann::json> world_log(const std::filesystem::path& run) {
  std::vector<nlohmann::json> lines = untimed_log(run);
  for (nlohmann::json& line : lines) {
    line.erase("waited");
    line.erase("decoding_seconds");
  }
  return lines;
}

// Expects that the logs of two runs have the same lines: losses, norms, rates, counters, validations.
inline void expect_same_logs(const std::filesystem::path& found, const std::filesystem::path& expected) {
  expect_same_json(world_log(found), world_log(expected), "metrics.jsonl");
}

// Returns the fewest micro-batches of one step of a run.
inline int64_t smallest_step(const data::Corpus& corpus, const TrainOptions& options, int64_t steps) {
  data::BatchOrder order(corpus, options.batches,
                         options.batches.pack_tokens > 0 ? data::RowForm::kJoined : data::RowForm::kSeparate);
  StepBatches batches(order, nullptr, at::kCPU, options.accumulate);
  data::BatchPosition position;
  int64_t fewest = options.accumulate;
  for (int64_t i = 0; i < steps; ++i) fewest = std::min(fewest, std::ssize(batches.next(position)));
  return fewest;
}

// Runs in worlds of 1 to 4 processes. Corpora are small: three steps an epoch, of 6, 6 and 1 micro-batches.
class WorldRuns : public testing::Test {
 protected:
  static constexpr int64_t kSteps = 20;

  void SetUp() override {
    write_reversal_corpus(folder_ / "train.h5", 78, 1);
    write_reversal_corpus(folder_ / "validation.h5", 40, 2);
    write_copy_corpus(folder_ / "copy.h5", 78, 1);
  }

  TrainOptions world_options() const {
    TrainOptions options = tiny_options();
    options.length = std::to_string(kSteps) + " steps";
    options.accumulate = 6;
    options.batches.token_budget = 1000;
    options.batches.max_rows = 6;
    options.clip_norm = 0.5;
    options.log_every = 1;
    options.checkpoint_every = "";
    options.tensorboard = false;
    return options;
  }

  // Trains in a job of `size` processes in FOLDER/<run>; returns what each process ended with, by rank.
  std::vector<Ended> train_in(int64_t size, const TrainOptions& options, const std::string& run, const Trainee& trainee,
                              const std::filesystem::path& continue_from = {}) const {
    const data::Corpus corpus(folder_ / corpus_), validation(folder_ / "validation.h5");
    std::vector<Ended> all(static_cast<size_t>(size));
    testing_support::run_in_world(size, [&](World& world) {
      trainee({.world = world,
               .corpus = corpus,
               .validation = validates_ ? &validation : nullptr,
               .options = options,
               .directory = folder_ / run,
               .continue_from = continue_from,
               .ended = all[static_cast<size_t>(world.rank())]});
    });
    return all;
  }

  // Expects that jobs of 2, 3 and 4 processes end as a run of one does: with the same weights in each process, and the
  // same log.
  void expect_equal_worlds(const TrainOptions& options, const Trainee& trainee) const {
    const Ended alone = train_in(1, options, "world of 1", trainee).front();
    ASSERT_EQ(alone.error, "");
    for (const int64_t size : {2, 3, 4}) {
      SCOPED_TRACE("a world of " + std::to_string(size));
      const std::string run = "world of " + std::to_string(size);
      double apart = 0;
      for (const Ended& ended : train_in(size, options, run, trainee)) {
        EXPECT_EQ(ended.error, "");
        EXPECT_EQ(ended.state.step, alone.state.step);
        EXPECT_EQ(ended.state.labels, alone.state.labels);
        apart = std::max(apart, expect_same_weights(ended.weights, alone.weights));
      }
      RecordProperty("weights_apart_in_" + std::to_string(size), testing::PrintToString(apart));
      expect_same_logs(folder_ / run, folder_ / "world of 1");
    }
  }

  // Expects the same of a whole run of 20 steps with clipping, one of whose steps has a single micro-batch.
  void expect_equal_training(const TrainOptions& options, const Trainee& trainee) const {
    EXPECT_EQ(smallest_step(data::Corpus(folder_ / corpus_), options, kSteps), 1);
    expect_equal_worlds(options, trainee);
    const auto lines = world_log(folder_ / "world of 1");
    ASSERT_EQ(std::ssize(lines), kSteps);
    double clipped = 0;
    for (const auto& line : lines) clipped += line.at("clipped").get<double>();
    EXPECT_GT(clipped, 0);
    EXPECT_NE(lines.front().at("loss"), lines.back().at("loss"));
  }

  TemporaryDirectory folder_;
  std::string corpus_ = "train.h5";
  bool validates_ = false;
  std::optional<SignalWatch> watch_{std::in_place};  // no test leaves a request to stop behind
};

}  // namespace draftsmith::train
