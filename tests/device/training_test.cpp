// Training on the stand-in accelerator: a step's loss, gradients and update are the CPU's, dropout included.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "data/corpus/corpus.h"
#include "tests/device/test_device.h"
#include "tests/standin/standin.h"
#include "tests/support/models.h"
#include "train/objectives/objective.h"
#include "train/optimizers/optimizer.h"
#include "train/trainable/trainable_model.h"
#include "train/training_step.h"

namespace draftsmith::train {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

// Loss, gradients and weights after one update, on the CPU; waits of the micro-batches.
struct Outcome {
  double loss = 0;
  Tensors gradients;
  Tensors weights;
  int64_t waits = 0;
  int64_t launches = 0;
};

class DeviceTraining : public testing::Test {
 protected:
  void SetUp() override {
    data::CorpusWriter writer(
        folder_ / "corpus.h5",
        {.tokenizer_hash = "none", .vocabulary = kVocabulary, .provenance = {{"prompts", "true"}}});
    for (int32_t i = 0; i < 8; ++i) {
      writer.add(std::vector<int32_t>{3 + i, 5, 2 + i, 9}, std::vector<int32_t>{4, 3 + i, 7, 1});
    }
    writer.finish();
  }

  Outcome train(model::TransformerConfig config, c10::Device where, double dropout) const {
    config.vocabulary = kVocabulary;
    config.dropout = dropout;
    const auto model = model::varied_model(config, 3);
    model->to(where, at::kDouble);
    model->requires_grad(true);
    const data::Corpus corpus(folder_ / "corpus.h5");
    PlainTrainable trainable(*model);
    const auto objective = make_objective({});
    const auto optimizer = make_optimizer(model->parameters(), {});
    standin::reset_counts();
    const StepResult result =
        accumulate_gradients(trainable, *objective, corpus, {{0, 1, 2, 3}, {4, 5, 6, 7}}, {.dropout = dropout});
    Outcome outcome;
    outcome.loss = result.loss_sum;
    outcome.waits = standin::counts().waits;
    outcome.launches = standin::counts().all_launches();
    for (const auto& [name, value] : model->parameters()) {
      if (value.grad().defined()) outcome.gradients[name] = value.grad().to(at::kCPU).clone();
    }
    optimizer->step(1e-3, gradient_scale(result, 1));
    for (const auto& [name, value] : model->parameters()) outcome.weights[name] = value.detach().to(at::kCPU).clone();
    return outcome;
  }

  static double relative_difference(const at::Tensor& found, const at::Tensor& expected) {
    return (found - expected).abs().max().item<double>() / std::max(expected.abs().max().item<double>(), 1e-30);
  }

  static void expect_close(const Tensors& found, const Tensors& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, value] : expected) EXPECT_LT(relative_difference(found.at(name), value), 1e-9) << name;
  }

  static constexpr int64_t kVocabulary = 24;
  TemporaryDirectory folder_;
};

TEST_F(DeviceTraining, AStepIsTheCpus) {
  for (const model::TransformerConfig& config : model::tiny_families()) {
    SCOPED_TRACE(config.family);
    for (const double dropout : {0.0, 0.1}) {
      const Outcome expected = train(config, at::kCPU, dropout);
      const Outcome found = train(config, on_device::test_device(), dropout);
      EXPECT_NEAR(found.loss, expected.loss, 1e-9 * std::abs(expected.loss));
      expect_close(found.gradients, expected.gradients);
      expect_close(found.weights, expected.weights);
    }
  }
}

// The numbers are those of today, of two micro-batches. Dropout is one launch each way.
TEST_F(DeviceTraining, AStepKeepsItsBudget) {
  if (!on_device::on_standin()) GTEST_SKIP() << "only the stand-in accelerator counts";
  const Outcome plain = train(model::tiny_t5(), on_device::test_device(), 0);
  EXPECT_LE(plain.launches, 836);
  EXPECT_LE(plain.waits, 13);
  const Outcome dropped = train(model::tiny_t5(), on_device::test_device(), 0.1);
  EXPECT_LE(dropped.launches, 956);
  EXPECT_LE(dropped.waits, 13);
}

}  // namespace
}  // namespace draftsmith::train
