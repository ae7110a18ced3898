// Whole training runs on the device: they resume to the same bits, and validation leaves the memory as it was.
#include "train/trainer.h"

#include <csignal>
#include <cstring>

#include <gtest/gtest.h>

#include "base/device_tensors.h"
#include "base/files.h"
#include "base/signals.h"
#include "data/corpus/corpus.h"
#include "tests/device/device.h"
#include "tests/support/models.h"
#include "train/trainable/trainable_model.h"
#include "train/validation.h"

namespace draftsmith::train {
namespace {

using on_device::test_device;

class DeviceTrainer : public testing::Test {
 protected:
  void SetUp() override { on_device::write_training_corpus(folder_ / "corpus.h5", 40, true); }

  static TrainOptions options(const std::string& precision) {
    TrainOptions options;
    options.length = "12 steps";
    options.accumulate = 2;
    options.dropout = 0.1;
    options.batches.token_budget = 60;
    options.batches.bucket_window = 4;
    options.optimizer.lr = 3e-3;
    options.precision = precision;
    options.checkpoint_every = "";
    return options;
  }

  // Trains in a directory, or goes on there.
  TrainResult train(const std::string& name, const TrainOptions& options, at::Device device) const {
    const auto model = on_device::trainee(model::t5_config(), device, at::kFloat);
    const data::Corpus corpus(folder_ / "corpus.h5");
    PlainTrainable trainable(*model);
    return run_training({.trainable = trainable, .corpus = corpus}, options, folder_ / name);
  }

  std::string bytes(const std::string& run, const std::string& file) const { return read_file(folder_ / run / file); }

  // Returns all numbers of a run's model, which is in fp32.
  at::Tensor parameters(const std::string& run) const {
    const std::string file = bytes(run, "model/model.safetensors");
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof(header));
    const size_t begin = sizeof(header) + header;
    at::Tensor numbers = at::empty({static_cast<int64_t>((file.size() - begin) / sizeof(float))}, at::kFloat);
    std::memcpy(numbers.mutable_data_ptr(), file.data() + begin, numbers.nbytes());
    return numbers;
  }

  TemporaryDirectory folder_;
};

TEST_F(DeviceTrainer, AStoppedRunEndsWithTheSameBits) {
  for (const auto& [precision, optimizer] :
       {std::pair<std::string, std::string>{"fp32", "adamw"}, {"bf16", "adafactor"}}) {
    SCOPED_TRACE(precision);
    TrainOptions chosen = options(precision);
    chosen.optimizer.name = optimizer;
    const std::string whole = "whole " + precision, stopped = "stopped " + precision;
    train(whole, chosen, test_device());
    for (int i = 0; i < 2; ++i) {
      const SignalWatch watch;
      raise(SIGTERM);
      EXPECT_THROW(train(stopped, chosen, test_device()), Interrupted);
    }
    train(stopped, chosen, test_device());
    if (test_device().is_cuda()) {  // where sums may have another order each time
      EXPECT_LT((parameters(whole) - parameters(stopped)).abs().mean().item<double>(), 1e-4);
      continue;
    }
    for (const char* file : {"model/model.safetensors", "checkpoints/last/optimizer.safetensors"}) {
      EXPECT_TRUE(bytes(whole, file) == bytes(stopped, file)) << file << " differs";
    }
  }
}

// Copies to the device wait neither for it nor for each other, large ones included.
TEST(DeviceUpload, DoesNotWait) {
  const at::Tensor large = at::arange(100000, at::kLong);
  standin::reset_counts();
  const at::Tensor there = upload(large, test_device());
  EXPECT_EQ(standin::counts().waits, 0);
  EXPECT_EQ(there.device(), test_device());
  EXPECT_TRUE(there.cpu().equal(large));
  EXPECT_TRUE(upload(large, at::kCPU).is_same(large));
}

size_t allocated_bytes() {
  standin::take_peak_bytes();
  return standin::take_peak_bytes();
}

TEST(DeviceValidation, LeavesNoStates) {
  if (!on_device::on_standin()) GTEST_SKIP() << "only the stand-in accelerator counts bytes";
  const TemporaryDirectory folder;
  on_device::write_training_corpus(folder / "corpus.h5", 12, false);
  const data::Corpus corpus(folder / "corpus.h5");
  const auto trained = on_device::trainee(model::tiny_t5(), test_device(), at::kFloat);
  const auto teacher = on_device::trainee(model::tiny_t5(), test_device(), at::kFloat);
  PlainTrainable trainable(*trained);
  ValidationOptions options;
  options.draft_examples = 8;
  options.draft_window = 3;
  options.max_new_tokens = 10;
  const auto validated = [&] {
    validate(trainable, {.corpus = &corpus, .teacher = teacher.get()}, options);
    return allocated_bytes();
  };
  const size_t before = allocated_bytes();
  EXPECT_EQ(validated(), before);
  EXPECT_EQ(validated(), before);
}

}  // namespace
}  // namespace draftsmith::train
