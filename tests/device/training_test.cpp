// Training steps on the device: loss, gradients and update are the CPU's, with dropout, for Tandems and with a teacher;
// what a step asks of the device, and what it keeps there.
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "data/corpus/corpus.h"
#include "tests/device/device.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"
#include "train/objectives/objective.h"
#include "train/optimizers/optimizer.h"
#include "train/teacher/teacher_source.h"
#include "train/trainable/tandem_trainables.h"
#include "train/trainable/trainable_model.h"
#include "train/training_step.h"

namespace draftsmith::train {
namespace {

using on_device::test_device;
using Tensors = std::map<std::string, at::Tensor>;

// Loss, gradients and weights after one update, on the CPU; requests of the micro-batches and of the update.
struct Outcome {
  double loss = 0;
  Tensors gradients;
  Tensors weights;
  standin::Counts step, update;
};

struct Given {
  model::TransformerConfig config;
  c10::Device where = at::kCPU;
  StepSettings settings = {};
  bool ragged = true;
  at::ScalarType type = at::kDouble;
};

ObjectiveOptions distilling(const std::string& divergence) {
  ObjectiveOptions options{.name = "distill"};
  options.distill.divergence = divergence;
  options.distill.temperature = 2;
  options.distill.label_smoothing = 0.1;
  return options;
}

class DeviceTraining : public testing::Test {
 protected:
  void SetUp() override {
    on_device::write_training_corpus(folder_ / "even.h5", 8, false);
    on_device::write_training_corpus(folder_ / "ragged.h5", 8, true);
  }

  Outcome train(const Given& given) const {
    const auto model = on_device::trainee(given.config, given.where, given.type);
    PlainTrainable trainable(*model);
    return train(trainable, given);
  }

  Outcome train(TrainableModel& trainable, const Given& given, const ObjectiveOptions& options = {},
                TeacherSource* teacher = nullptr) const {
    const data::Corpus corpus(folder_ / (given.ragged ? "ragged.h5" : "even.h5"));
    const auto objective =
        make_objective(options, {.trainable = &trainable, .corpus = &corpus, .teacher = teacher, .token_budget = 100});
    require_gradients(trainable, true);
    const auto optimizer = make_optimizer(trainable.parameters(), {});
    standin::reset_counts();
    const StepResult result =
        accumulate_gradients(trainable, *objective, corpus, {{0, 1, 2, 3}, {4, 5, 6, 7}}, given.settings);
    Outcome outcome;
    outcome.loss = result.loss_sum;
    outcome.step = standin::counts();
    for (const auto& [name, value] : trainable.parameters()) {
      if (value.grad().defined()) outcome.gradients[name] = value.grad().to(at::kCPU).clone();
    }
    standin::reset_counts();
    optimizer->step(1e-3, gradient_scale(result, 1));
    outcome.update = standin::counts();
    for (const auto& [name, value] : trainable.parameters()) outcome.weights[name] = value.detach().cpu().clone();
    return outcome;
  }

  // Trains on the CPU and on the device, and compares them.
  void expect_same(Given given) const {
    expect_same([&](at::Device device) {
      given.where = device;
      return train(given);
    });
  }

  template <class Train>
  static void expect_same(const Train& train_on) {
    constexpr double kTolerance = 1e-9;
    const Outcome expected = train_on(at::kCPU), found = train_on(test_device());
    EXPECT_NEAR(found.loss, expected.loss, kTolerance * std::abs(expected.loss));
    expect_close(found.gradients, expected.gradients, kTolerance);
    expect_close(found.weights, expected.weights, kTolerance);
    EXPECT_LE(found.step.waits, 1);  // none but on the stand-in, which counts
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
  for (const model::TransformerConfig& config : model::tiny_models()) {
    for (const bool ragged : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", config.family, ragged));
      expect_same({.config = config, .settings = {.dropout = ragged ? 0.1 : 0}, .ragged = ragged});
    }
    if (!config.encoder_decoder) expect_same({.config = config, .settings = {.pack_tokens = 24}});
  }
}

// Products are in bf16 on both, in other orders and roundings.
TEST_F(DeviceTraining, AStepWithProductsInBf16IsNearlyTheCpus) {
  for (const model::TransformerConfig& config : model::tiny_families()) {
    SCOPED_TRACE(config.family);
    const Given given{.config = config, .settings = {.dropout = 0.1, .autocast = true}, .type = at::kFloat};
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

TEST_F(DeviceTraining, AStepOfATandemIsTheCpus) {
  for (const auto& config : {model::tiny_t5(), model::tiny_llama(3)}) {
    for (const auto configuration : {TandemConfiguration::kPrimaryFrozen, TandemConfiguration::kBothBothLosses}) {
      SCOPED_TRACE(fmt::format("{} {}", config.family, static_cast<int>(configuration)));
      expect_same([&](at::Device device) {
        const auto primary = on_device::trainee(config, at::kCPU, at::kDouble);
        const auto secondary = model::small_secondary(*primary, 4);
        primary->to(device, at::kDouble);
        secondary->to(device, at::kDouble);
        TandemTrainable trainable(*secondary, *primary, {.configuration = configuration});
        return train(trainable, {.config = config, .settings = {.dropout = 0.1}}, distilling("forward_kl"));
      });
    }
  }
}

// LibTorch's operators compute the divergence and its slope: up to 24 launches more for each micro-batch.
TEST_F(DeviceTraining, DistillationFromALiveTeacherIsTheCpusAndKeepsItsBudget) {
  for (const char* divergence : {"forward_kl", "reverse_kl", "jsd", "tv"}) {
    SCOPED_TRACE(divergence);
    expect_same([&](at::Device device) {
      const auto student = on_device::trainee(model::tiny_t5(), device, at::kDouble);
      const auto teacher = on_device::trainee(model::tiny_mt5(), device, at::kDouble);
      PlainTrainable trainable(*student);
      LiveTeacher source(*teacher);
      Outcome found = train(trainable, {.config = {}, .settings = {.dropout = 0.1}}, distilling(divergence), &source);
      EXPECT_LE(found.step.all_launches(), 1420);
      return found;
    });
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
    SCOPED_TRACE(fmt::format("{} dropout {} ragged {}", budget.config.family, budget.dropout, budget.ragged));
    fmt::print("{} dropout {} ragged {}: {} launches, update {}\n", budget.config.family, budget.dropout, budget.ragged,
               found.step.all_launches(), found.update.all_launches());
    EXPECT_LE(found.step.all_launches(), budget.launches);
    EXPECT_LE(found.step.copies_to_device + found.step.copies_to_host, budget.copies);
    EXPECT_LE(found.step.waits, 1);
    EXPECT_LE(found.update.all_launches(), 3);
    EXPECT_EQ(found.update.waits, 0);
  }
}

constexpr int64_t kPositions = 40, kIds = 50, kWidth = 16;

// Loss and gradients, on the CPU.
struct LossAndGradients {
  at::Tensor loss, hidden, head;
};

LossAndGradients computed(const at::Tensor& hidden, const at::Tensor& head, at::Device device) {
  const at::Tensor rows = hidden.detach().to(device).requires_grad_(true);
  const at::Tensor weight = head.detach().to(device).requires_grad_(true);
  const at::Tensor labels = at::arange(kPositions, at::kLong).mul_(7).remainder_(kIds).to(device);
  const auto loss = cross_entropy_loss({.labels = {labels, {}}}, 0.2);
  const at::Tensor sum = linear_loss({{.hidden = rows, .head = {.weight = weight}, .loss = loss}});
  sum.backward();
  return {sum.detach().cpu(), rows.grad().cpu(), weight.grad().cpu()};
}

TEST(DeviceLoss, CrossEntropyIsTheCpusInOneLaunch) {
  const at::Tensor hidden = random_tensor({kPositions, kWidth}, 1, at::kDouble);
  const at::Tensor head = random_tensor({kIds, kWidth}, 2, at::kDouble);
  standin::reset_counts();
  const LossAndGradients found = computed(hidden, head, test_device());
  if (on_device::on_standin()) {
    EXPECT_EQ(standin::counts().launches.at("cross_entropy"), 1);
  }
  const LossAndGradients expected = computed(hidden, head, at::kCPU);
  EXPECT_LT(difference(found.loss, expected.loss), 1e-12 * largest(expected.loss));
  EXPECT_LT(difference(found.hidden, expected.hidden), 1e-12);
  EXPECT_LT(difference(found.head, expected.head), 1e-12);
}

// Three times a matrix, another that learns slowly, and a vector.
Tensors parameters_on(at::Device device) {
  Tensors parameters;
  for (int64_t i = 0; i < 3; ++i) {
    const auto add = [&](const std::string& name, at::IntArrayRef shape) {
      parameters[fmt::format("{}.{}", i, name)] =
          random_tensor(shape, static_cast<uint64_t>(i + 1), at::kDouble).to(device).requires_grad_(true);
    };
    add("matrix", {4, 6});
    add("slow", {4, 6});
    add("vector", {5});
  }
  return parameters;
}

// Gives all parameters but one gradients.
void set_gradients(const Tensors& parameters, uint64_t step) {
  for (const auto& [name, value] : parameters) {
    if (name == "1.matrix" && step == 1) continue;
    const at::Tensor gradient = random_tensor(value.sizes(), 100 + step, at::kDouble) * static_cast<double>(name[0]);
    value.mutable_grad() = gradient.to(value.device());
  }
}

OptimizerOptions options_of(const std::string& name, bool all) {
  OptimizerOptions options;
  options.name = name;
  options.groups = {{.parameters = "*.slow", .lr_factor = 0.25}};
  if (!all) return options;
  options.weight_decay = 0.1;
  options.adafactor.scale_parameter = true;
  options.adafactor.beta1 = 0.9;
  return options;
}

Tensors trained(const OptimizerOptions& options, at::Device device) {
  const Tensors parameters = parameters_on(device);
  const auto optimizer = make_optimizer(parameters, options);
  for (uint64_t step = 0; step < 3; ++step) {
    set_gradients(parameters, step);
    optimizer->step(0.01, 0.5);
    optimizer->zero_grad();
  }
  Tensors found;
  for (const auto& [name, value] : parameters) found[name] = value.detach().to(at::kCPU);
  for (const auto& [name, value] : optimizer->state()) found["state " + name] = value.to(at::kCPU);
  return found;
}

TEST(DeviceOptimizers, UpdateAsOnTheCpu) {
  for (const char* name : {"adamw", "adafactor"}) {
    for (const bool all : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", name, all));
      const Tensors expected = trained(options_of(name, all), at::kCPU);
      const Tensors found = trained(options_of(name, all), on_device::test_device());
      ASSERT_EQ(found.size(), expected.size());
      for (const auto& [key, value] : expected) EXPECT_LT(difference(found.at(key), value), 1e-12) << key;
    }
  }
}

}  // namespace
}  // namespace draftsmith::train
