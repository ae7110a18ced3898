// Training on a device: loss, gradients and update of a step are the CPU's, with dropout, for Tandems and with a
// teacher; what a step asks of the stand-in accelerator. Whole runs resume to the same bits, and validation leaves no
// memory.
#include <cmath>
#include <csignal>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/device_tensors.h"
#include "base/files.h"
#include "base/signals.h"
#include "data/corpus/corpus.h"
#include "model/files/weight_files.h"
#include "tests/device/device.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"
#include "train/objectives/objective.h"
#include "train/optimizers/optimizer.h"
#include "train/teacher/teacher_source.h"
#include "train/trainable/tandem_trainables.h"
#include "train/trainable/trainable_model.h"
#include "train/trainer.h"
#include "train/training_step.h"
#include "train/validation.h"

namespace draftsmith::train {
namespace {

using on_device::on_standin;
using on_device::test_device;
using Tensors = std::map<std::string, at::Tensor>;

constexpr int64_t kVocabulary = 24;
constexpr double kTolerance = 1e-9;

// Writes a corpus that every family can be trained on: prompts and continuations of one length, or of several.
void write_corpus(const std::filesystem::path& file, int32_t examples, bool ragged) {
  data::CorpusWriter writer(file,
                            {.tokenizer_hash = "none", .vocabulary = kVocabulary, .provenance = {{"prompts", "true"}}});
  for (int32_t i = 0; i < examples; ++i) {
    std::vector<int32_t> source, target;
    for (int32_t t = 0; t < (ragged ? i % 5 : 4); ++t) source.push_back(2 + (7 * i + 3 * t) % 20);
    for (int32_t t = 0; t < (ragged ? 1 + (3 * i) % 7 : 3); ++t) target.push_back(2 + (5 * i + 11 * t) % 20);
    target.push_back(1);
    writer.add(source, target);
  }
  writer.finish();
}

// Returns a model of that corpus's vocabulary that is ready to be trained.
std::unique_ptr<model::TransformerModel> trainee(model::TransformerConfig config, at::Device device,
                                                 at::ScalarType type) {
  config.vocabulary = kVocabulary;
  auto model = model::varied_model(config, 3);
  model->to(device, type);
  model->requires_grad(true);
  return model;
}

// Of the last update: loss and gradients, weights and states after it, on the CPU; requests of the micro-batches and of
// the update.
struct Outcome {
  double loss = 0;
  Tensors gradients, weights;
  standin::Counts step, update;
};

struct Given {
  model::TransformerConfig config = {};
  c10::Device where = at::kCPU;
  StepSettings settings = {};
  bool ragged = true;
  at::ScalarType type = at::kDouble;
  ObjectiveOptions objective = {};
  OptimizerOptions optimizer = {};
  int64_t updates = 1;
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
    write_corpus(folder_ / "even.h5", 8, false);
    write_corpus(folder_ / "ragged.h5", 8, true);
  }

  Outcome train(const Given& given) const {
    const auto model = trainee(given.config, given.where, given.type);
    PlainTrainable trainable(*model);
    return train(trainable, given);
  }

  Outcome train(TrainableModel& trainable, const Given& given, TeacherSource* teacher = nullptr) const {
    const data::Corpus corpus(folder_ / (given.ragged ? "ragged.h5" : "even.h5"));
    const auto objective = make_objective(
        given.objective, {.trainable = &trainable, .corpus = &corpus, .teacher = teacher, .token_budget = 100});
    require_gradients(trainable, true);
    const auto optimizer = make_optimizer(trainable.parameters(), given.optimizer);
    Outcome outcome;
    for (int64_t update = 0; update < given.updates; ++update) {
      optimizer->zero_grad();
      standin::reset_counts();
      const StepResult result =
          accumulate_gradients(trainable, *objective, corpus, {{0, 1, 2, 3}, {4, 5, 6, 7}}, given.settings);
      outcome.loss = result.loss_sum;
      outcome.step = standin::counts();
      for (const auto& [name, value] : trainable.parameters()) {
        if (value.grad().defined()) outcome.gradients[name] = value.grad().to(at::kCPU).clone();
      }
      standin::reset_counts();
      optimizer->step(1e-3, gradient_scale(result, 1));
      outcome.update = standin::counts();
    }
    for (const auto& [name, value] : trainable.parameters()) outcome.weights[name] = value.detach().cpu().clone();
    for (const auto& [name, value] : optimizer->state()) outcome.weights["state " + name] = value.cpu().clone();
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
    const Outcome expected = train_on(at::kCPU), found = train_on(test_device());
    EXPECT_NEAR(found.loss, expected.loss, kTolerance * std::abs(expected.loss));
    expect_close(found.gradients, expected.gradients);
    expect_close(found.weights, expected.weights);
    EXPECT_LE(found.step.waits, 1);  // none but on the stand-in, which counts
  }

  static void expect_close(const Tensors& found, const Tensors& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, value] : expected) {  // gradients of biases of keys are zero but for rounding
      EXPECT_LT(difference(found.at(name), value), kTolerance * std::max(largest(value), 1e-5)) << name;
    }
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
      expect_same({.config = config,
                   .settings = {.dropout = ragged ? 0.1 : 0},
                   .ragged = ragged,
                   .objective = {.cross_entropy = {.label_smoothing = ragged ? 0.2 : 0}}});
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
        const auto primary = trainee(config, at::kCPU, at::kDouble);
        const auto secondary = model::small_secondary(*primary, 4);
        primary->to(device, at::kDouble);
        secondary->to(device, at::kDouble);
        TandemTrainable trainable(*secondary, *primary, {.configuration = configuration});
        return train(trainable, {.settings = {.dropout = 0.1}, .objective = distilling("forward_kl")});
      });
    }
  }
}

// LibTorch's operators compute the divergence and its slope: up to 24 launches more for each micro-batch.
TEST_F(DeviceTraining, DistillationFromALiveTeacherIsTheCpusAndKeepsItsBudget) {
  for (const char* divergence : {"forward_kl", "reverse_kl", "jsd", "tv"}) {
    SCOPED_TRACE(divergence);
    expect_same([&](at::Device device) {
      const auto student = trainee(model::tiny_t5(), device, at::kDouble);
      const auto teacher = trainee(model::tiny_mt5(), device, at::kDouble);
      PlainTrainable trainable(*student);
      LiveTeacher source(*teacher);
      Outcome found = train(trainable, {.settings = {.dropout = 0.1}, .objective = distilling(divergence)}, &source);
      EXPECT_LE(found.step.all_launches(), 1420);
      return found;
    });
  }
}

// The numbers are those of today, of two micro-batches; dropout is one launch each way. The only wait is for loss and
// norm. With rows of several lengths, masks are made of lengths on the device.
TEST_F(DeviceTraining, AStepKeepsItsBudget) {
  if (!on_standin()) GTEST_SKIP() << "only the stand-in accelerator counts";
  for (const auto& [config, dropout, ragged, launches, copies] : {std::tuple{model::tiny_t5(), 0.0, false, 676, 3},
                                                                  {model::tiny_t5(), 0.1, false, 954, 3},
                                                                  {model::tiny_t5(), 0.0, true, 718, 9},
                                                                  {model::tiny_llama(3), 0.0, true, 635, 5}}) {
    const Outcome found =
        train({.config = config, .where = test_device(), .settings = {.dropout = dropout}, .ragged = ragged});
    SCOPED_TRACE(fmt::format("{} dropout {} ragged {}", config.family, dropout, ragged));
    EXPECT_EQ(found.step.launches.at("cross_entropy"), 2);
    EXPECT_LE(found.step.all_launches(), launches);
    EXPECT_LE(found.step.copies_to_device + found.step.copies_to_host, copies);
    EXPECT_LE(found.step.waits, 1);
    EXPECT_LE(found.update.all_launches(), 3);
    EXPECT_EQ(found.update.waits, 0);
  }
}

TEST_F(DeviceTraining, OptimizersUpdateAsOnTheCpu) {
  for (const char* name : {"adamw", "adafactor"}) {
    for (const bool all : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", name, all));
      OptimizerOptions options{.name = name, .groups = {{.parameters = "decoder.*", .lr_factor = 0.25}}};
      if (all) {
        options.weight_decay = 0.1;
        if (options.name == "adafactor") options.adafactor = {.scale_parameter = true, .beta1 = 0.9};
      }
      expect_same({.config = model::tiny_t5(), .optimizer = options, .updates = 3});
    }
  }
}

TEST_F(DeviceTraining, AStoppedRunEndsWithTheSameBits) {
  for (const auto& [precision, optimizer] : {std::pair{"fp32", "adamw"}, {"bf16", "adafactor"}}) {
    TrainOptions options{.length = "12 steps", .accumulate = 2, .dropout = 0.1, .precision = precision};
    options.batches = {.token_budget = 60, .bucket_window = 4};
    options.optimizer = {.name = optimizer, .lr = 3e-3};
    options.checkpoint_every = "";
    // Trains in a directory, or goes on there.
    const auto run_in = [&](const std::filesystem::path& directory) {
      const auto model = trainee(model::t5_config(), test_device(), at::kFloat);
      const data::Corpus corpus(folder_ / "ragged.h5");
      PlainTrainable trainable(*model);
      run_training({.trainable = trainable, .corpus = corpus}, options, directory);
    };
    const std::filesystem::path whole = folder_ / fmt::format("whole {}", precision);
    const std::filesystem::path stopped = folder_ / fmt::format("stopped {}", precision);
    run_in(whole);
    for (int i = 0; i < 2; ++i) {
      const SignalWatch watch;
      raise(SIGTERM);
      EXPECT_THROW(run_in(stopped), Interrupted);
    }
    run_in(stopped);
    const model::SafetensorsFile expected(whole / "model/model.safetensors"),
        found(stopped / "model/model.safetensors");
    for (const auto& [name, entry] : expected.tensors()) {
      EXPECT_LT(difference(found.stored(name).to(at::kFloat), expected.stored(name).to(at::kFloat)), 1e-3) << name;
    }
    if (test_device().is_cuda()) continue;  // where sums may have another order each time
    for (const char* file : {"model/model.safetensors", "checkpoints/last/optimizer.safetensors"}) {
      EXPECT_TRUE(read_file(whole / file) == read_file(stopped / file)) << file << " differs";
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

TEST_F(DeviceTraining, ValidationLeavesNoStates) {
  if (!on_standin()) GTEST_SKIP() << "only the stand-in accelerator counts bytes";
  const data::Corpus corpus(folder_ / "even.h5");
  const auto trained = trainee(model::tiny_t5(), test_device(), at::kFloat);
  const auto teacher = trainee(model::tiny_t5(), test_device(), at::kFloat);
  PlainTrainable trainable(*trained);
  const auto allocated_bytes = [] {
    standin::take_peak_bytes();
    return standin::take_peak_bytes();
  };
  const size_t before = allocated_bytes();
  for (int i = 0; i < 2; ++i) {
    validate(trainable, {.corpus = &corpus, .teacher = teacher.get()},
             {.draft_examples = 8, .draft_window = 3, .max_new_tokens = 10});
    EXPECT_EQ(allocated_bytes(), before);
  }
}

}  // namespace
}  // namespace draftsmith::train
