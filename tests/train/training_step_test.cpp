// One step's gradients: of micro-batches, with dropout, and with products in bf16.
#include "train/training_step.h"

#include <gmock/gmock.h>

#include "base/bf16_product.h"
#include "base/files.h"
#include "model/cpu/instructions.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/train/fixtures.h"
#include "tests/train/trainable/fixtures.h"

namespace draftsmith::train {
namespace {

class TrainingStep : public testing::Test {
 protected:
  void SetUp() override { write_copy_corpus(folder_ / "corpus.h5", 8, 3); }

  // Gradients of a step of two micro-batches.
  Weights gradients(TrainableModel& trainable, const StepSettings& settings) const {
    const data::Corpus corpus(folder_ / "corpus.h5");
    const auto objective = make_objective({});
    require_gradients(trainable, true);
    for (const auto& [name, value] : trainable.parameters()) value.mutable_grad().reset();
    accumulate_gradients(trainable, *objective, corpus, {{0, 1, 2, 3}, {4, 5, 6, 7}}, settings);
    Weights found;
    for (const auto& [name, value] : trainable.parameters()) {
      if (value.grad().defined()) found[name] = value.grad().clone();
    }
    return found;
  }

  TemporaryDirectory folder_;
};

TEST(Precision, AutoIsBf16WhereCpusHaveFastProductsOfIt) {
  EXPECT_FALSE(trains_in_bf16("fp32", at::kCPU));
  EXPECT_TRUE(trains_in_bf16("bf16", at::kCPU));
  EXPECT_TRUE(trains_in_bf16("bf16", at::kCUDA));
  EXPECT_FALSE(trains_in_bf16("auto", at::kCUDA));
  // Where the variable DRAFTSMITH_CPU forbids an instruction, training leaves it alone, too.
  const auto needed = has_bf16_tiles() ? model::Instructions::kAmx : model::Instructions::kAvx512;
  EXPECT_EQ(trains_in_bf16("auto", at::kCPU), has_bf16_product() && model::cpu_instructions() >= needed);
}

TEST_F(TrainingStep, GradientsOfBf16PointWhereThoseOfFp32Do) {
  for (model::TransformerConfig config : model::tiny_families()) {
    config.vocabulary = kTestVocabulary;
    SCOPED_TRACE(config.family);
    const auto model = model::varied_model(config, 3, at::kFloat);
    PlainTrainable trainable(*model);
    const Weights exact = gradients(trainable, {}), rounded = gradients(trainable, {.autocast = true});
    ASSERT_EQ(exact.size(), rounded.size());
    for (const auto& [name, gradient] : exact) {
      const double apart = (rounded.at(name) - gradient).norm().item<double>(), length = gradient.norm().item<double>();
      // A key's bias shifts all scores of a query alike: its gradient is rounding.
      EXPECT_LT(apart, 0.1 * length + 0.02) << name;
    }
  }
}

// Gradients of all micro-batches of a step, times gradient_scale.
Weights gradients_of(const data::Corpus& corpus, const MicroBatches& micro_batches) {
  model::TransformerModel model(tiny_config(), 5);
  PlainTrainable trainable(model);
  model.requires_grad(true);
  const StepResult result = accumulate_gradients(trainable, *make_objective({}), corpus, micro_batches, {});
  Weights gradients;
  for (const auto& [name, parameter] : model.parameters()) {
    gradients[name] = parameter.grad() * gradient_scale(result, 0);
  }
  return gradients;
}

TEST_F(TrainingStep, AccumulatedGradientsEqualThoseOfTheLargeBatch) {
  write_reversal_corpus(folder_ / "train.h5", 300, 1);
  const data::Corpus corpus(folder_ / "train.h5");
  // Micro-batches of very different numbers of labels: a mean of means would be wrong.
  const auto accumulated = gradients_of(corpus, {{0, 1, 2, 3, 4, 5, 6}, {7}, {8, 9}});
  const auto large = gradients_of(corpus, {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}});
  EXPECT_EQ(differences(accumulated, large, 1e-4), "");
  const auto other = gradients_of(corpus, {{0, 1, 2, 3, 4, 5, 6, 7, 8}});
  EXPECT_NE(differences(accumulated, other, 1e-2), "") << "the comparison must be able to fail";
}

TEST_F(TrainingStep, ClippingBoundsTheGlobalNorm) {
  const StepResult result{.loss_sum = 8, .labels = 9, .divisor = 4, .gradient_norm = 10};
  EXPECT_DOUBLE_EQ(gradient_scale(result, 0), 0.25);
  EXPECT_DOUBLE_EQ(gradient_scale(result, 20), 0.25);
  EXPECT_DOUBLE_EQ(gradient_scale(result, 1), 0.025);
}

TEST_F(TrainingStep, DropoutIsAFunctionOfSeedAndMicroStep) {
  write_reversal_corpus(folder_ / "train.h5", 3, 1);
  const data::Corpus corpus(folder_ / "train.h5");
  const auto loss_of = [&](uint64_t seed, uint64_t micro_step) {
    model::TransformerModel model(tiny_config(), 5);
    PlainTrainable trainable(model);
    model.requires_grad(true);
    const auto objective = make_objective({});
    const StepSettings settings{.dropout = 0.3, .seed = seed, .first_micro_step = micro_step};
    return accumulate_gradients(trainable, *objective, corpus, {{0, 1, 2}}, settings).loss_sum;
  };
  EXPECT_EQ(loss_of(1, 7), loss_of(1, 7));
  EXPECT_NE(loss_of(1, 7), loss_of(1, 8));
  EXPECT_NE(loss_of(1, 7), loss_of(2, 7));
}

TEST_F(TrainingStep, ANonFiniteLossNamesTheCorpusAndTheExamples) {
  const data::Corpus corpus(folder_ / "corpus.h5");
  const auto model = model::varied_model(with_test_vocabulary(model::tiny_llama()), 3, at::kFloat);
  PoisonedTrainable trainable(*model, 2);
  require_gradients(trainable, true);
  EXPECT_THAT(error_of<RunError>([&] {
                accumulate_gradients(trainable, *make_objective({}), corpus, {{2, 3}, {1, 5}}, {.step = 7});
              }),
              testing::AllOf(testing::HasSubstr("training step 7"), testing::HasSubstr("examples 1, 5"),
                             testing::HasSubstr("corpus.h5")));
}

}  // namespace
}  // namespace draftsmith::train
