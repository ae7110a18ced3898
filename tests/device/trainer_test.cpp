// Whole training runs on the device: they resume to the same bits, and the batches that threads make ahead are those of
// the corpus.
#include "train/trainer.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "base/device_tensors.h"
#include "base/files.h"
#include "base/signals.h"
#include "tests/device/test_device.h"
#include "tests/device/training_run.h"
#include "tests/standin/standin.h"
#include "tests/support/errors.h"
#include "train/step_batches.h"

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
    options.tensorboard = false;
    return options;
  }

  // Trains in a directory, or goes on there.
  TrainResult train(const std::string& name, const TrainOptions& options, at::Device device) const {
    const auto model = on_device::trainee(model::t5_config(), device, at::kFloat);
    const data::Corpus corpus(folder_ / "corpus.h5");
    PlainTrainable trainable(*model);
    return Trainer({.trainable = trainable, .corpus = corpus}, options, folder_ / name).run();
  }

  static HostBatchMaker maker(const data::Corpus& corpus) {
    return [&](const std::vector<int64_t>& examples) { return make_host_batch(corpus, examples, model::ModelInfo{}); };
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
  for (const std::string precision : {"fp32", "bf16"}) {
    for (const std::string optimizer : {"adamw", "adafactor"}) {
      SCOPED_TRACE(precision + " " + optimizer);
      TrainOptions chosen = options(precision);
      chosen.optimizer.name = optimizer;
      const std::string whole = "whole " + precision + optimizer, stopped = "stopped " + precision + optimizer;
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
}

// All epochs: steps at the end of one, and steps of one micro-batch.
TEST_F(DeviceTrainer, BatchesMadeAheadAreThoseOfTheCorpus) {
  const data::Corpus corpus(folder_ / "corpus.h5");
  data::BatchOrder order(corpus, {.token_budget = 60}), expected_order(corpus, {.token_budget = 60});
  StepBatches on_cpu(expected_order, maker(corpus), at::kCPU, 3);
  StepBatches ahead(order, maker(corpus), test_device(), 3);
  data::BatchPosition position, expected_position;
  while (expected_position.epoch < 3) {
    const MicroBatches expected = on_cpu.next(expected_position);
    ASSERT_EQ(ahead.next(position), expected);
    EXPECT_EQ(position.epoch, expected_position.epoch);
    EXPECT_EQ(position.batch, expected_position.batch);
    for (const std::vector<int64_t>& examples : expected) {
      const Batch found = ahead.take(examples), wanted = on_cpu.take(examples);
      EXPECT_EQ(found.labels.device(), test_device());
      EXPECT_TRUE(found.source.tokens.cpu().equal(wanted.source.tokens));
      EXPECT_TRUE(found.decoder_input.tokens.cpu().equal(wanted.decoder_input.tokens));
      EXPECT_TRUE(found.labels.cpu().equal(wanted.labels));
      EXPECT_TRUE(found.positions.cpu().equal(wanted.positions));
      EXPECT_EQ(found.source.lengths, wanted.source.lengths);
      EXPECT_EQ(found.examples, wanted.examples);
    }
  }
}

// A position that was not expected, as after a run's state was restored.
TEST_F(DeviceTrainer, BatchesMadeAheadForAnotherStepAreDropped) {
  const data::Corpus corpus(folder_ / "corpus.h5");
  data::BatchOrder order(corpus, {.token_budget = 60});
  StepBatches batches(order, maker(corpus), test_device(), 1);
  data::BatchPosition position;
  const MicroBatches first = batches.next(position);
  data::BatchPosition again;
  ASSERT_EQ(batches.next(again), first);
  EXPECT_EQ(batches.take(first.front()).examples, first.front());
}

// The batches of every step but the first are made by other threads, those of an epoch's first step included.
TEST_F(DeviceTrainer, ThreadsMakeTheBatchesOfLaterSteps) {
  if (test_device().is_cpu()) GTEST_SKIP() << "batches are made ahead for other devices than the CPU";
  const data::Corpus corpus(folder_ / "corpus.h5");
  data::BatchOrder order(corpus, {.token_budget = 60});
  std::atomic<int64_t> here = 0, elsewhere = 0;
  const HostBatchMaker counted = [&, own = std::this_thread::get_id()](const std::vector<int64_t>& examples) {
    ++(std::this_thread::get_id() == own ? here : elsewhere);
    return maker(corpus)(examples);
  };
  int64_t taken = 0, steps = 0;
  {
    StepBatches batches(order, counted, test_device(), 2);
    data::BatchPosition position;
    for (; position.epoch < 2; ++steps) {
      for (const std::vector<int64_t>& examples : batches.next(position)) {
        batches.take(examples);
        ++taken;
      }
    }
  }
  ASSERT_GE(steps, 4);
  EXPECT_EQ(here, 1 + (taken > steps ? 1 : 0)) << "the first step's";
  EXPECT_GE(elsewhere, taken - here);
}

// A trainer that ends in the middle of an epoch drops the batches of the step that it does not take, and waits for the
// thread that makes them.
TEST_F(DeviceTrainer, LeavesNoThread) {
  const data::Corpus corpus(folder_ / "corpus.h5");
  std::atomic<int64_t> at_work = 0;
  const HostBatchMaker slow = [&](const std::vector<int64_t>& examples) {
    ++at_work;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    HostBatch batch = maker(corpus)(examples);
    --at_work;
    return batch;
  };
  {
    data::BatchOrder order(corpus, {.token_budget = 60});
    StepBatches batches(order, slow, test_device(), 1);
    data::BatchPosition position;
    for (int i = 0; i < 3; ++i) batches.next(position);
  }
  EXPECT_EQ(at_work, 0);
}

TEST_F(DeviceTrainer, BatchesAreTakenInTheirOrder) {
  if (test_device().is_cpu()) GTEST_SKIP() << "batches are made ahead for other devices than the CPU";
  const data::Corpus corpus(folder_ / "corpus.h5");
  data::BatchOrder order(corpus, {.token_budget = 60});
  StepBatches batches(order, maker(corpus), test_device(), 2);
  data::BatchPosition position;
  batches.next(position);
  const MicroBatches second = batches.next(position);
  ASSERT_EQ(second.size(), 2);
  EXPECT_THROW(batches.take(second.back()), std::logic_error);
}

// Errors of the thread reach the caller as they are.
TEST_F(DeviceTrainer, ErrorsOfBatchesMadeAheadReachTheCaller) {
  if (test_device().is_cpu()) GTEST_SKIP() << "batches are made ahead for other devices than the CPU";
  const data::Corpus corpus(folder_ / "corpus.h5");
  data::BatchOrder order(corpus, {.token_budget = 60});
  const auto fails = [&, own = std::this_thread::get_id()](const std::vector<int64_t>& examples) -> HostBatch {
    if (std::this_thread::get_id() == own) return maker(corpus)(examples);
    throw RunError(Problem{.where = "a thread", .what = "cannot make a batch"});
  };
  StepBatches batches(order, fails, test_device(), 1);
  data::BatchPosition position;
  batches.next(position);
  const MicroBatches second = batches.next(position);
  EXPECT_NE(error_of<RunError>([&] { batches.take(second.front()); }).find("cannot make a batch"), std::string::npos);
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

}  // namespace
}  // namespace draftsmith::train
