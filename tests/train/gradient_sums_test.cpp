// Sums of gradients over the processes of a job: during the backward pass as after it, in bf16 nearly as in fp32.
#include "train/gradient_sums.h"

#include <gtest/gtest.h>

#include "tests/train/fp64_trainable.h"

namespace draftsmith::train {
namespace {

class GradientSumsInWorlds : public WorldRuns {
 protected:
  // A model whose gradients fill several buckets: its six feed-forward matrices have 19 MB each.
  static Trainee wide_model() {
    return [](const Process& process) {
      auto config = tiny_config();
      config.ff_width = 300'000;
      const auto model = model::varied_model(config, 5, at::kFloat);
      PlainTrainable trainable(*model);
      process.train(trainable);
    };
  }

  // Expects the same bits of all weights in all processes of two runs.
  static void expect_same_bits(const std::vector<Ended>& some, const std::vector<Ended>& others) {
    ASSERT_EQ(some.size(), others.size());
    for (size_t i = 0; i < some.size(); ++i) {
      EXPECT_EQ(some[i].error + others[i].error, "");
      for (const auto& [name, value] : some.front().weights) {
        EXPECT_TRUE(value.equal(some[i].weights.at(name))) << name << " in process " << i;
        EXPECT_TRUE(value.equal(others[i].weights.at(name))) << name << " in process " << i << " of the others";
      }
    }
  }
};

TEST_F(GradientSumsInWorlds, OverlapWithTheBackwardPassChangesNoBit) {
  TrainOptions options = world_options();
  options.length = "5 steps";
  for (const char* type : {"fp32", "bf16"}) {
    for (const int64_t size : {2, 3, 4}) {
      SCOPED_TRACE(std::string(type) + ", a world of " + std::to_string(size));
      options.reduce_dtype = type;
      options.overlap_communication = false;
      const auto after = train_in(size, options, "after", kept_in_fp64());
      options.overlap_communication = true;
      const auto during = train_in(size, options, "during", kept_in_fp64());
      expect_same_bits(after, during);
      expect_same_logs(folder_ / "during", folder_ / "after");
      for (const char* run : {"after", "during"}) std::filesystem::remove_all(folder_ / run);
    }
  }
}

TEST_F(GradientSumsInWorlds, OverlapOfSeveralBucketsChangesNoBit) {
  TrainOptions options = world_options();
  options.length = "2 steps";
  options.accumulate = 4;
  options.batches.max_rows = 1;
  const auto after = train_in(3, options, "after", wide_model());
  options.overlap_communication = true;
  expect_same_bits(after, train_in(3, options, "during", wide_model()));
}

TEST_F(GradientSumsInWorlds, OverlapTrainsAsOneProcess) {
  TrainOptions options = world_options();
  options.overlap_communication = true;
  options.activation_checkpointing = true;
  expect_equal_training(options, kept_in_fp64());
}

TEST_F(GradientSumsInWorlds, Bf16IsNearAndOneProcessKeepsItsOwnType) {
  TrainOptions options = world_options();
  const Ended exact = train_in(1, options, "exact", kept_in_fp64()).front();
  options.reduce_dtype = "bf16";
  const Ended alone = train_in(1, options, "alone", kept_in_fp64()).front();
  for (const auto& [name, value] : exact.weights) EXPECT_TRUE(value.equal(alone.weights.at(name))) << name;
  for (const int64_t size : {2, 3, 4}) {
    const auto all = train_in(size, options, "bf16 of " + std::to_string(size), kept_in_fp64());
    double apart = 0;
    for (const auto& [name, value] : exact.weights) {
      EXPECT_TRUE(all.front().weights.at(name).equal(all.back().weights.at(name))) << name;
      apart = std::max(apart, difference(all.front().weights.at(name), value) / largest(value));
    }
    RecordProperty("weights_apart_in_" + std::to_string(size), testing::PrintToString(apart));
    EXPECT_GT(apart, 1e-6);
    EXPECT_LT(apart, 0.1);
  }
}

}  // namespace
}  // namespace draftsmith::train
