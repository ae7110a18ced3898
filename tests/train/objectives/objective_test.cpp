// Cross entropy: its value against the definition, its gradient against finite differences.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"
#include "tests/train/fixtures.h"
#include "tests/train/objectives/loss_fixtures.h"
#include "train/objectives/cross_entropy.h"

namespace draftsmith::train {
namespace {

struct Head {
  at::Tensor hidden;  // [P,D]
  at::Tensor weight;  // [V,D]
  at::Tensor labels;  // [P]
};

Head random_head(int64_t positions, int64_t vocabulary) {
  at::manual_seed(3);
  const auto options = at::TensorOptions(at::kDouble);
  return {at::randn({positions, 5}, options).requires_grad_(true),
          at::randn({vocabulary, 5}, options).requires_grad_(true),
          at::randint(vocabulary, {positions}, at::TensorOptions(at::kLong))};
}

// The definition, with plain operations.
at::Tensor by_definition(const Head& head, double smoothing) {
  const at::Tensor log_probs = head.hidden.mm(head.weight.t()).log_softmax(1);
  const at::Tensor nll = -log_probs.gather(1, head.labels.unsqueeze(1)).sum();
  return (1 - smoothing) * nll - smoothing * log_probs.mean(1).sum();
}

TEST(CrossEntropy, EqualsItsDefinition) {
  const Head head = random_head(9, 11);
  for (const double smoothing : {0.0, 0.1, 0.5}) {
    const double ours = linear_cross_entropy(head.hidden, head.weight, head.labels, smoothing).item<double>();
    EXPECT_NEAR(ours, by_definition(head, smoothing).item<double>(), 1e-10) << smoothing;
  }
}

TEST(CrossEntropy, GradientEqualsFiniteDifferences) {
  for (const double smoothing : {0.0, 0.2}) {
    const Head head = random_head(7, 13);
    const auto loss = [&] {
      return linear_cross_entropy(head.hidden, head.weight, head.labels, smoothing).item<double>();
    };
    linear_cross_entropy(head.hidden, head.weight, head.labels, smoothing).backward();
    EXPECT_LT(difference(head.hidden.grad(), numeric_gradient(head.hidden, loss)), 1e-7);
    EXPECT_LT(difference(head.weight.grad(), numeric_gradient(head.weight, loss)), 1e-7);
  }
}

TEST(CrossEntropy, GradientFollowsAFactorOnTheLoss) {
  const Head head = random_head(4, 6);
  (linear_cross_entropy(head.hidden, head.weight, head.labels, 0.1) * 0.25).backward();
  const at::Tensor hidden = head.hidden.grad().clone();
  head.hidden.mutable_grad().reset();
  (by_definition(head, 0.1) * 0.25).backward();
  EXPECT_LT(difference(hidden, head.hidden.grad()), 1e-12);
}

// A vocabulary so large that the positions are cut into several blocks, the last one shorter.
TEST(CrossEntropy, BlocksOfPositionsChangeNothing) {
  const Head head = random_head(150, 300'000);
  linear_cross_entropy(head.hidden, head.weight, head.labels, 0.1).backward();
  const at::Tensor hidden = head.hidden.grad().clone(), weight = head.weight.grad().clone();
  head.hidden.mutable_grad().reset();
  head.weight.mutable_grad().reset();
  const at::Tensor expected = by_definition(head, 0.1);
  EXPECT_NEAR(linear_cross_entropy(head.hidden, head.weight, head.labels, 0.1).item<double>(), expected.item<double>(),
              1e-6);
  expected.backward();
  EXPECT_LT(difference(hidden, head.hidden.grad()), 1e-9);
  EXPECT_LT(difference(weight, head.weight.grad()), 1e-9);
}

TEST(CrossEntropy, PredictionCountsWithoutSmoothing) {
  const Head head = random_head(9, 11);
  const at::NoGradGuard no_grad;
  const Prediction prediction = predict(head.hidden, {head.weight}, head.labels);
  EXPECT_NEAR(prediction.loss.sum.item<double>(), by_definition(head, 0).item<double>(), 1e-10);
  EXPECT_TRUE(prediction.arg_maxs.equal(head.hidden.mm(head.weight.t()).argmax(1)));
  EXPECT_EQ(prediction.loss.count, 9);
}

// Padding must not reach the loss: a row alone and beside a longer one have the same loss and gradients.
TEST(CrossEntropy, PaddingIsNotPartOfTheLoss) {
  const TemporaryDirectory folder;
  write_reversal_corpus(folder / "train.h5", 12, 1);
  const data::Corpus corpus(folder / "train.h5");
  model::TransformerModel model(tiny_config(), 5);
  PlainTrainable trainable(model);
  CrossEntropy objective({.label_smoothing = 0.1});
  const at::NoGradGuard no_grad;
  std::vector<int64_t> all;
  double alone = 0;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    all.push_back(i);
    alone += objective.loss(trainable, make_batch(corpus, {i}, model.info()), {}).sum.item<double>();
  }
  const Loss together = objective.loss(trainable, make_batch(corpus, all, model.info()), {});
  EXPECT_NEAR(together.sum.item<double>(), alone, 1e-4 * alone);
  EXPECT_EQ(together.count, corpus.info().target_tokens);
}

TEST(Objectives, AnUnknownNameIsAnErrorThatNamesTheKnown) {
  const std::string message = error_of([] { make_objective({.name = "cross_entropi", .cross_entropy = {}}); });
  EXPECT_NE(message.find("cross_entropy"), std::string::npos) << message;
}

}  // namespace
}  // namespace draftsmith::train
