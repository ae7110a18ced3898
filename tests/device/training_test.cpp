// Training steps on the device: a step's loss, gradients and update are the CPU's, dropout included; what a step asks
// of the device, and what it keeps there.
#include <cmath>
#include <iostream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/device/test_device.h"
#include "tests/device/training_run.h"
#include "tests/standin/standin.h"
#include "tests/support/tensors.h"
#include "train/objectives/objective.h"
#include "train/optimizers/optimizer.h"
#include "train/trainable/trainable_model.h"
#include "train/training_step.h"

namespace draftsmith::train {
namespace {

using on_device::kVocabulary;
using on_device::test_device;
using Tensors = std::map<std::string, at::Tensor>;

// Loss, gradients and weights after one update, on the CPU; requests of the micro-batches and of the update.
struct Outcome {
  double loss = 0;
  Tensors gradients;
  Tensors weights;
  standin::Counts step, update;
  size_t peak_bytes = 0;  // of the micro-batches

  std::string by_name() const {
    std::string text;
    for (const auto& [name, count] : step.launches) text += fmt::format(" {} {}", name, count);
    return text;
  }
};

struct Given {
  model::TransformerConfig config;
  c10::Device where = at::kCPU;
  StepSettings settings = {};
  bool ragged = true;
  at::ScalarType type = at::kDouble;
};

class DeviceTraining : public testing::Test {
 protected:
  void SetUp() override {
    on_device::write_training_corpus(folder_ / "even.h5", 8, false);
    on_device::write_training_corpus(folder_ / "ragged.h5", 8, true);
  }

  Outcome train(const Given& given) const {
    const auto model = on_device::trainee(given.config, given.where, given.type);
    const data::Corpus corpus(folder_ / (given.ragged ? "ragged.h5" : "even.h5"));
    PlainTrainable trainable(*model);
    const auto objective = make_objective({});
    const auto optimizer = make_optimizer(model->parameters(), {});
    standin::reset_counts();
    standin::take_peak_bytes();
    const StepResult result =
        accumulate_gradients(trainable, *objective, corpus, {{0, 1, 2, 3}, {4, 5, 6, 7}}, given.settings);
    Outcome outcome;
    outcome.peak_bytes = standin::take_peak_bytes();
    outcome.loss = result.loss_sum;
    outcome.step = standin::counts();
    for (const auto& [name, value] : model->parameters()) {
      if (value.grad().defined()) outcome.gradients[name] = value.grad().to(at::kCPU).clone();
    }
    standin::reset_counts();
    optimizer->step(1e-3, gradient_scale(result, 1));
    outcome.update = standin::counts();
    for (const auto& [name, value] : model->parameters()) outcome.weights[name] = value.detach().to(at::kCPU).clone();
    return outcome;
  }

  // Trains on the CPU and on the device, and compares them.
  void expect_same(Given given, double tolerance = 1e-9) const {
    given.where = at::kCPU;
    const Outcome expected = train(given);
    given.where = test_device();
    const Outcome found = train(given);
    EXPECT_NEAR(found.loss, expected.loss, tolerance * std::abs(expected.loss));
    expect_close(found.gradients, expected.gradients, tolerance);
    expect_close(found.weights, expected.weights, tolerance);
  }

  // Gradients of biases of keys are zero but for rounding.
  static double relative_difference(const at::Tensor& found, const at::Tensor& expected) {
    return difference(found, expected) / std::max(largest(expected), 1e-5);
  }

  static void expect_close(const Tensors& found, const Tensors& expected, double tolerance) {
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, value] : expected) EXPECT_LT(relative_difference(found.at(name), value), tolerance) << name;
  }

  // Distance of all gradients together.
  static double distance(const Tensors& found, const Tensors& expected) {
    double squares = 0;
    for (const auto& [name, value] : expected) squares += (found.at(name) - value).square().sum().item<double>();
    return std::sqrt(squares);
  }

  TemporaryDirectory folder_;
};

TEST_F(DeviceTraining, AStepIsTheCpus) {
  for (const model::TransformerConfig& config : model::tiny_families()) {
    for (const double dropout : {0.0, 0.1}) {
      for (const bool ragged : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", config.family, dropout, ragged));
        expect_same({.config = config, .settings = {.dropout = dropout}, .ragged = ragged});
      }
    }
  }
}

TEST_F(DeviceTraining, AStepOfPackedRowsIsTheCpus) {
  for (const model::TransformerConfig& config : model::tiny_families()) {
    if (config.encoder_decoder) continue;
    SCOPED_TRACE(config.family);
    expect_same({.config = config, .settings = {.pack_tokens = 24}});
  }
}

// Products are in bf16 on both, in other orders and roundings.
TEST_F(DeviceTraining, AStepWithProductsInBf16IsNearlyTheCpus) {
  for (const model::TransformerConfig& config : model::tiny_families()) {
    for (const double dropout : {0.0, 0.1}) {
      SCOPED_TRACE(fmt::format("{} {}", config.family, dropout));
      const Given given{.config = config, .settings = {.dropout = dropout, .autocast = true}, .type = at::kFloat};
      Given wide = given, there = given;
      wide.settings.autocast = false;
      there.where = test_device();
      const Outcome in_bf16 = train(there), on_cpu = train(given), in_fp32 = train(wide);
      EXPECT_NEAR(in_bf16.loss, in_fp32.loss, 1e-2 * std::abs(in_fp32.loss));
      EXPECT_NE(in_bf16.loss, in_fp32.loss);
      ASSERT_EQ(in_bf16.gradients.size(), on_cpu.gradients.size());
      const double factor = test_device().is_cuda() ? 4 : 2;  // fused attention rounds in other places
      EXPECT_LT(distance(in_bf16.gradients, in_fp32.gradients), factor * distance(on_cpu.gradients, in_fp32.gradients));
    }
  }
}

TEST_F(DeviceTraining, RecomputedLayersGiveTheSameGradientsInLessMemory) {
  for (model::TransformerConfig config : {model::tiny_t5(), model::tiny_llama(3)}) {
    SCOPED_TRACE(config.family);
    config.decoder_layers = 8;
    const auto at_device = [&](bool recompute) {
      return train({.config = config, .where = test_device(), .settings = {.dropout = 0.1, .recompute = recompute}});
    };
    const Outcome kept = at_device(false), again = at_device(true);
    expect_close(again.gradients, kept.gradients, 1e-12);
    if (!on_device::on_standin()) continue;
    std::cout << fmt::format("{}: peak {} bytes, recomputed {}\n", config.family, kept.peak_bytes, again.peak_bytes);
    EXPECT_LT(again.peak_bytes, 0.75 * static_cast<double>(kept.peak_bytes));
  }
}

// The numbers are those of today, of two micro-batches; dropout is one launch each way. The only wait is for loss and
// norm. With rows of several lengths, masks are made of lengths on the device.
TEST_F(DeviceTraining, AStepKeepsItsBudget) {
  if (!on_device::on_standin()) GTEST_SKIP() << "only the stand-in accelerator counts";
  struct Budget {
    model::TransformerConfig config;
    double dropout = 0;
    bool ragged = false;
    int64_t launches = 0;
    int64_t copies = 0;
  };
  for (const Budget& budget : {Budget{model::tiny_t5(), 0, false, 676, 3},
                               {model::tiny_t5(), 0.1, false, 954, 3},
                               {model::tiny_t5(), 0, true, 718, 9},
                               {model::tiny_llama(3), 0, true, 635, 5}}) {
    const Outcome found = train({.config = budget.config,
                                 .where = test_device(),
                                 .settings = {.dropout = budget.dropout},
                                 .ragged = budget.ragged});
    SCOPED_TRACE(fmt::format("{} dropout {} ragged {}: {} launches:{}", budget.config.family, budget.dropout,
                             budget.ragged, found.step.all_launches(), found.by_name()));
    std::cout << fmt::format("{} dropout {} ragged {}: {} launches, {} copies, {} waits; update {}\n",
                             budget.config.family, budget.dropout, budget.ragged, found.step.all_launches(),
                             found.step.copies_to_device + found.step.copies_to_host, found.step.waits,
                             found.update.all_launches());
    EXPECT_LE(found.step.all_launches(), budget.launches);
    EXPECT_LE(found.step.copies_to_device + found.step.copies_to_host, budget.copies);
    EXPECT_LE(found.step.waits, 1);
    EXPECT_LE(found.update.all_launches(), 3);
    EXPECT_EQ(found.update.waits, 0);
  }
}

// Order alone needs no mask, and attention keeps no scores.
TEST_F(DeviceTraining, CausalAttentionNeedsNoMask) {
  if (!on_device::on_standin()) GTEST_SKIP() << "only the stand-in accelerator counts";
  const Outcome found = train({.config = model::tiny_llama(3), .where = test_device()});
  EXPECT_FALSE(found.step.launches.contains("triu_")) << found.by_name();
  EXPECT_FALSE(found.step.launches.contains("masked_fill_")) << found.by_name();
  EXPECT_FALSE(found.step.launches.contains("_softmax")) << found.by_name();
}

}  // namespace
}  // namespace draftsmith::train
