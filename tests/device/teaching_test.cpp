// Steps with several models on the device: Tandems and distillation from a live teacher. They are the CPU's, and wait
// once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/device/test_device.h"
#include "tests/device/training_run.h"
#include "tests/model/kinds/tandem_passes.h"
#include "tests/standin/standin.h"
#include "tests/support/tensors.h"
#include "train/teacher/teacher_source.h"
#include "train/trainable/tandem_trainable.h"
#include "train/training_step.h"

namespace draftsmith::train {
namespace {

using on_device::test_device;
using Tensors = std::map<std::string, at::Tensor>;

// Loss and gradients on the CPU, and the requests of a step of two micro-batches.
struct TaughtStep {
  double loss = 0;
  Tensors gradients;
  standin::Counts counts;
};

class DeviceTeaching : public testing::Test {
 protected:
  void SetUp() override { on_device::write_training_corpus(folder_ / "corpus.h5", 8, true); }

  TaughtStep step(TrainableModel& trainable, const ObjectiveOptions& options, TeacherSource* teacher) const {
    const data::Corpus corpus(folder_ / "corpus.h5");
    const auto objective =
        make_objective(options, {.trainable = &trainable, .corpus = &corpus, .teacher = teacher, .token_budget = 100});
    require_gradients(trainable, true);
    standin::reset_counts();
    const StepResult result =
        accumulate_gradients(trainable, *objective, corpus, {{0, 1, 2, 3}, {4, 5, 6, 7}}, {.dropout = 0.1});
    TaughtStep taught{.loss = result.loss_sum, .gradients = {}, .counts = standin::counts()};
    for (const auto& [name, value] : trainable.parameters()) {
      if (value.grad().defined()) taught.gradients[name] = value.grad().to(at::kCPU);
    }
    return taught;
  }

  static void expect_same(const TaughtStep& found, const TaughtStep& expected) {
    EXPECT_NEAR(found.loss, expected.loss, 1e-9 * std::abs(expected.loss));
    ASSERT_EQ(found.gradients.size(), expected.gradients.size());
    for (const auto& [name, value] : expected.gradients) {
      EXPECT_LT(difference(found.gradients.at(name), value), 1e-9 * std::max(1e-9, largest(value))) << name;
    }
    EXPECT_LE(found.counts.waits, 1);  // none but on the stand-in, which counts
  }

  static ObjectiveOptions distilling(const std::string& divergence) {
    ObjectiveOptions options{.name = "distill"};
    options.distill.divergence = divergence;
    options.distill.temperature = 2;
    options.distill.label_smoothing = 0.1;
    return options;
  }

  TemporaryDirectory folder_;
};

TEST_F(DeviceTeaching, AStepOfATandemIsTheCpus) {
  const auto run = [&](const model::TransformerConfig& config, TandemConfiguration configuration,
                       const ObjectiveOptions& objective, at::Device device) {
    const auto primary = on_device::trainee(config, at::kCPU, at::kDouble);
    const auto secondary = model::small_secondary(*primary, 4);
    primary->to(device, at::kDouble);
    secondary->to(device, at::kDouble);
    TandemTrainable trainable(*secondary, *primary, {.configuration = configuration});
    return step(trainable, objective, nullptr);
  };
  for (const auto& config : {model::tiny_t5(), model::tiny_llama(3)}) {
    for (const auto configuration : {TandemConfiguration::kPrimaryFrozen, TandemConfiguration::kBothBothLosses}) {
      for (const ObjectiveOptions& objective : {ObjectiveOptions{}, distilling("forward_kl")}) {
        SCOPED_TRACE(fmt::format("{} {} {}", config.family, static_cast<int>(configuration), objective.name));
        expect_same(run(config, configuration, objective, test_device()),
                    run(config, configuration, objective, at::kCPU));
      }
    }
  }
}

TEST_F(DeviceTeaching, DistillationFromALiveTeacherIsTheCpus) {
  const auto run = [&](const ObjectiveOptions& objective, at::Device device) {
    const auto student = on_device::trainee(model::tiny_t5(), device, at::kDouble);
    const auto teacher = on_device::trainee(model::tiny_mt5(), device, at::kDouble);
    PlainTrainable trainable(*student);
    LiveTeacher source(*teacher);
    return step(trainable, objective, &source);
  };
  for (const char* divergence : {"forward_kl", "reverse_kl", "jsd", "tv"}) {
    SCOPED_TRACE(divergence);
    expect_same(run(distilling(divergence), test_device()), run(distilling(divergence), at::kCPU));
  }
}

// LibTorch's operators compute the divergence and its slope: up to 24 launches more for each micro-batch.
TEST_F(DeviceTeaching, AStepOfDistillationKeepsItsBudget) {
  if (!on_device::on_standin()) GTEST_SKIP() << "only the stand-in accelerator counts";
  const auto student = on_device::trainee(model::tiny_t5(), test_device(), at::kDouble);
  const auto teacher = on_device::trainee(model::tiny_mt5(), test_device(), at::kDouble);
  PlainTrainable trainable(*student);
  LiveTeacher source(*teacher);
  const int64_t plain = step(trainable, {}, nullptr).counts.all_launches();
  for (const char* divergence : {"forward_kl", "reverse_kl", "jsd", "tv"}) {
    const TaughtStep found = step(trainable, distilling(divergence), &source);
    fmt::print("{:<10} {} launches, {} without a teacher\n", divergence, found.counts.all_launches(), plain);
    EXPECT_LE(found.counts.all_launches(), 1420);
  }
}

}  // namespace
}  // namespace draftsmith::train
