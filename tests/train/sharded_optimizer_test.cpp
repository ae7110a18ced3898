// Optimizer state that is dealt out to processes: results, checkpoints and restored runs are those of whole state.
#include "train/optimizers/sharded_optimizer.h"

#include <csignal>
#include <mutex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/train/fp64_trainable.h"
#include "tests/train/worlds_fixtures.h"

namespace draftsmith::train {
namespace {

using testing::HasSubstr;
using testing_support::run_in_world;

OptimizedParameter of_size(int64_t numbers) {
  return {.name = std::to_string(numbers), .value = at::zeros({numbers})};
}

TEST(DealParameters, GivesTheNextLargestToWhoHasTheFewestNumbers) {
  const std::vector<OptimizedParameter> parameters{of_size(3), of_size(10), of_size(3), of_size(6), of_size(4)};
  EXPECT_EQ(deal_parameters(parameters, 1), (std::vector<int64_t>{0, 0, 0, 0, 0}));
  EXPECT_EQ(deal_parameters(parameters, 2), (std::vector<int64_t>{0, 0, 1, 1, 1}));
  EXPECT_EQ(deal_parameters(parameters, 8), (std::vector<int64_t>{3, 0, 4, 1, 2}));
}

class ShardedRuns : public WorldRuns {
 protected:
  TrainOptions options_of(const std::string& name) const {
    TrainOptions options = world_options();
    options.optimizer.name = name;
    options.optimizer.weight_decay = 0.01;
    options.optimizer.adafactor.scale_parameter = true;
    options.optimizer.adafactor.beta1 = 0.9;
    options.optimizer.groups = {{.parameters = "*.query.weight", .lr_factor = 0.5},
                                {.parameters = "decoder.final_norm.weight", .lr_factor = 0}};
    options.keep = "last";
    return options;
  }

  std::string optimizer_file(const std::string& run) const {
    return read_file(folder_ / run / "checkpoints" / "last" / "optimizer.safetensors");
  }

  // Expects that a run of `size` processes writes the same bytes with sharding and without.
  void expect_same_bytes(int64_t size, TrainOptions options) const {
    SCOPED_TRACE("a world of " + std::to_string(size));
    const std::string run = options.optimizer.name + " of " + std::to_string(size);
    const auto whole = train_in(size, options, run, kept_in_fp64());
    options.shard_optimizer = true;
    const auto sharded = train_in(size, options, run + ", sharded", kept_in_fp64());
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(whole[i].error + sharded[i].error, "");
      for (const auto& [name, value] : whole[i].weights) EXPECT_TRUE(value.equal(sharded[i].weights.at(name))) << name;
    }
    EXPECT_EQ(optimizer_file(run), optimizer_file(run + ", sharded"));
    expect_same_logs(folder_ / run, folder_ / (run + ", sharded"));
  }
};

using ShardedOptimizersInWorlds = ShardedRuns;

TEST_F(ShardedOptimizersInWorlds, TrainAsOneProcess) {
  for (const char* name : {"adamw", "adafactor"}) {
    SCOPED_TRACE(name);
    TrainOptions options = options_of(name);
    options.shard_optimizer = true;
    expect_equal_training(options, kept_in_fp64());
    for (const int64_t size : {1, 2, 3, 4}) {
      std::filesystem::remove_all(folder_ / ("world of " + std::to_string(size)));
    }
  }
}

TEST_F(ShardedOptimizersInWorlds, WriteTheBytesOfAnUnshardedOne) {
  for (const char* name : {"adamw", "adafactor"}) {
    for (const int64_t size : {2, 3, 4}) expect_same_bytes(size, options_of(name));
  }
}

TEST_F(ShardedOptimizersInWorlds, KeepEachTensorInOneProcess) {
  const auto model = model::varied_model(tiny_config(), 5);
  const auto whole = make_optimizer(model->parameters(), OptimizerOptions());
  std::mutex mutex;
  std::multiset<std::string> names;
  std::vector<int64_t> numbers(3);
  run_in_world(3, [&](World& world) {
    const auto own = model::varied_model(tiny_config(), 5);
    const ShardedOptimizer optimizer(own->parameters(), OptimizerOptions(), world);
    EXPECT_EQ(optimizer.parameters().size(), whole->parameters().size());
    const std::lock_guard lock(mutex);
    for (const auto& [name, tensor] : optimizer.state()) {
      names.insert(name);
      numbers[static_cast<size_t>(world.rank())] += tensor.numel();
    }
  });
  std::multiset<std::string> expected;
  int64_t all = 0, largest_pair = 0;
  for (const auto& [name, tensor] : whole->state()) {
    expected.insert(name);
    all += tensor.numel();
    largest_pair = std::max(largest_pair, 2 * tensor.numel());
  }
  EXPECT_EQ(names, expected);
  for (const int64_t own : numbers) EXPECT_LE(own, all / 3 + largest_pair);
}

TEST_F(ShardedOptimizersInWorlds, AreDealtAnewToAnyNumberOfProcesses) {
  for (const char* name : {"adamw", "adafactor"}) {
    SCOPED_TRACE(name);
    const std::string stopped = std::string("stopped ") + name;
    TrainOptions options = options_of(name);
    const Ended whole = train_in(1, options, std::string("whole ") + name, kept_in_fp64()).front();
    options.shard_optimizer = true;
    for (const Ended& ended : train_in(4, options, stopped, kept_in_fp64(/*stop_at=*/41))) {
      EXPECT_THAT(ended.error, HasSubstr("training stopped after step 10"));
    }
    for (const auto& [size, sharded] : {std::pair{3, true}, {1, true}, {2, false}}) {
      SCOPED_TRACE("going on with " + std::to_string(size));
      const std::string run = stopped + ", on with " + std::to_string(size);
      watch_.reset();
      watch_.emplace();  // which takes the request back
      std::filesystem::copy(folder_ / stopped, folder_ / run,
                            std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
      options.shard_optimizer = sharded;
      for (const Ended& ended : train_in(size, options, run, kept_in_fp64({}, /*seed=*/8))) {
        EXPECT_EQ(ended.error, "");
        EXPECT_EQ(ended.state.step, kSteps);
        expect_same_weights(ended.weights, whole.weights);
      }
      expect_same_logs(folder_ / run, folder_ / (std::string("whole ") + name));
    }
    watch_.reset();
    watch_.emplace();
  }
}

TEST_F(ShardedOptimizersInWorlds, ContinueARunOfWholeState) {
  TrainOptions options = options_of("adamw");
  options.schedule = {};  // which does not depend on the length
  const Ended whole = train_in(1, options, "whole", kept_in_fp64()).front();
  options.length = "10 steps";
  train_in(1, options, "parent", kept_in_fp64());
  options.length = "20 steps";
  options.shard_optimizer = true;
  for (const Ended& ended : train_in(3, options, "child", kept_in_fp64({}, /*seed=*/8), folder_ / "parent")) {
    EXPECT_EQ(ended.error, "");
    expect_same_weights(ended.weights, whole.weights);
  }
}

TEST_F(ShardedOptimizersInWorlds, RefuseACheckpointOfAnotherOptimizerOnAll) {
  TrainOptions options = options_of("adamw");
  options.shard_optimizer = true;
  train_in(2, options, "run", kept_in_fp64());
  const auto state = folder_ / "run" / "checkpoints" / "last" / "optimizer.safetensors";
  train_in(1, options_of("adafactor"), "other", kept_in_fp64());
  std::filesystem::copy_file(folder_ / "other" / "checkpoints" / "last" / "optimizer.safetensors", state,
                             std::filesystem::copy_options::overwrite_existing);
  const auto ends = train_in(2, options, "run", kept_in_fp64());
  EXPECT_THAT(ends.front().error, HasSubstr("the optimizer's state does not fit this run"));
  EXPECT_NE(ends.back().error, "");
}

TEST(TrainOptionsIdentity, HasTheTypeOfSumsButNotTheShardingOfTheOptimizer) {
  TrainOptions options;
  options.shard_optimizer = true;
  EXPECT_EQ(options_hash(options), options_hash(TrainOptions()));
  options.reduce_dtype = "bf16";
  EXPECT_NE(options_hash(options), options_hash(TrainOptions()));
}

}  // namespace
}  // namespace draftsmith::train
