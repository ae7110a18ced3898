// Losses over heads: values and gradients against plain operations, in blocks of positions, whatever heads the terms of
// a sum share; and logits of half-precision products.
#include <algorithm>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "base/random_tensors.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"
#include "tests/train/fixtures.h"
#include "tests/train/objectives/fixtures.h"

namespace draftsmith::train {
namespace {

at::Tensor random_leaf(at::IntArrayRef shape) {
  return at::randn(shape, at::TensorOptions(at::kDouble)).requires_grad_(true);
}

struct Term {
  at::Tensor hidden;  // [P,D]
  model::HeadWeights head;
  at::Tensor labels;  // [P]
  double factor = 1;
};

Term random_term(int64_t positions, model::HeadWeights head, double factor) {
  const at::Tensor labels = at::randint(head.weight.size(0), {positions}, at::TensorOptions(at::kLong));
  const int64_t beside = head.up.defined() && !head.down.defined() ? head.up.size(1) : 0;
  return {random_leaf({positions, kWidth + beside}), std::move(head), labels, factor};
}

at::Tensor together(const std::vector<Term>& terms) {
  std::vector<LossTerm> all;
  for (const Term& term : terms) {
    const auto loss = cross_entropy_loss({.labels = {term.labels, {}}}, 0.1);
    all.push_back({.hidden = term.hidden, .head = term.head, .loss = loss, .factor = term.factor});
  }
  return linear_loss(all);
}

at::Tensor by_definition(const std::vector<Term>& terms) {
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (const Term& term : terms) {
    at::Tensor weight = term.head.weight;
    if (term.head.down.defined()) weight = weight + term.head.up.mm(term.head.down);
    if (term.hidden.size(1) > kWidth) weight = at::cat({weight, term.head.up}, 1);
    at::Tensor logits = term.hidden.mm(weight.t());
    if (term.head.bias.defined()) logits = logits + term.head.bias;
    if (term.head.cap > 0) logits = term.head.cap * at::tanh(logits / term.head.cap);
    const at::Tensor log_probs = logits.log_softmax(1);
    const at::Tensor nll = -log_probs.gather(1, term.labels.unsqueeze(1)).sum();
    sum = sum + term.factor * (0.9 * nll - 0.1 * log_probs.mean(1).sum());
  }
  return sum;
}

void expect_by_definition(const std::vector<Term>& terms, double tolerance) {
  std::vector<at::Tensor> leaves;
  const auto add = [&](const at::Tensor& leaf) {
    if (!leaf.defined() || !leaf.requires_grad()) return;
    if (std::none_of(leaves.begin(), leaves.end(), [&](const auto& other) { return other.is_same(leaf); })) {
      leaves.push_back(leaf);
    }
  };
  for (const Term& term : terms) {
    for (const at::Tensor& leaf : {term.hidden, term.head.weight, term.head.down, term.head.up}) add(leaf);
  }
  std::vector<at::Tensor> found;
  const at::Tensor sum = together(terms);
  (sum * 0.25).backward();
  for (const at::Tensor& leaf : leaves) {
    found.push_back(leaf.grad().clone());
    leaf.mutable_grad().reset();
  }
  const at::Tensor expected = by_definition(terms);
  (expected * 0.25).backward();
  EXPECT_NEAR(sum.item<double>(), expected.item<double>(), tolerance);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const at::Tensor difference = (found[i] - leaves[i].grad()).abs();
    EXPECT_TRUE(difference.lt(tolerance).all().item<bool>()) << i;
    leaves[i].mutable_grad().reset();
  }
}

TEST(LinearLoss, TermsMayShareTheirHeadOrHaveTheirOwn) {
  at::manual_seed(3);
  const model::HeadWeights shared{random_leaf({11, kWidth})};
  const model::HeadWeights other{.weight = random_leaf({7, kWidth}), .bias = random_leaf({7}).detach()};
  expect_by_definition({random_term(6, shared, 1), random_term(6, shared, 0.3), random_term(4, other, 2)}, 1e-10);
}

TEST(LinearLoss, LogitsMayBeCapped) {
  at::manual_seed(8);
  const model::HeadWeights capped{.weight = random_leaf({11, kWidth}), .bias = random_leaf({11}).detach(), .cap = 2.5};
  const model::HeadWeights plain{capped.weight};
  expect_by_definition({random_term(6, capped, 1), random_term(6, plain, 0.3)}, 1e-10);
}

TEST(LinearLoss, AdditionsOfLowRankLearnBesideAFrozenHeadOrATrainedOne) {
  at::manual_seed(4);
  for (const bool frozen : {true, false}) {
    const at::Tensor weight = random_leaf({11, kWidth}).detach().requires_grad_(!frozen);
    const auto low_rank = [&](int64_t rank) {
      return model::HeadWeights{weight, random_leaf({rank, kWidth}), random_leaf({11, rank})};
    };
    const model::HeadWeights beside{.weight = weight, .up = random_leaf({11, 4})};
    expect_by_definition({random_term(6, low_rank(2), 0.5), random_term(6, low_rank(3), 1), random_term(6, {weight}, 1),
                          random_term(6, beside, 2)},
                         1e-10);
  }
}

// Vocabularies so large that positions are cut into blocks, of one term more often than of the other, the last shorter.
TEST(LinearLoss, BlocksOfTermsAddUp) {
  at::manual_seed(5);
  const model::HeadWeights large{random_leaf({300'000, kWidth})}, small{random_leaf({9, kWidth})};
  const model::HeadWeights low_rank{large.weight, random_leaf({2, kWidth}), random_leaf({300'000, 2})};
  expect_by_definition({random_term(70, large, 0.5), random_term(70, small, 1), random_term(70, low_rank, 1)}, 1e-9);
}

// All labels of a batch may be ids that a pruned head lacks.
TEST(LinearLoss, TermsWithoutPositionsCostNothing) {
  at::manual_seed(9);
  const model::HeadWeights shared{random_leaf({11, kWidth})}, other{random_leaf({7, kWidth})};
  expect_by_definition({random_term(0, shared, 1), random_term(4, shared, 0.5), random_term(0, other, 1)}, 1e-10);
  together({random_term(0, shared, 1), random_term(0, other, 1)}).backward();
  EXPECT_EQ(largest(shared.weight.grad()), 0);
}

TEST(LinearLoss, NothingIsWantedOfWhatIsFrozen) {
  at::manual_seed(6);
  const Term term = random_term(5, {random_leaf({7, kWidth}).detach()}, 1);
  Term frozen = random_term(5, term.head, 1);
  frozen.hidden = frozen.hidden.detach();
  together({term, frozen}).backward();
  EXPECT_TRUE(term.hidden.grad().defined());
  EXPECT_FALSE(term.head.weight.grad().defined());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(together({term}).requires_grad());
}

// A model's exits learn from a teacher whose logits are made once.
TEST(LinearLoss, StudentsOfOneModelShareTheirTeachersBlocks) {
  model::TransformerModel student(tiny_config(), 5);
  const int64_t vocabulary = student.config().vocabulary;
  at::manual_seed(7);
  const at::Tensor labels = at::randint(vocabulary, {9}, at::TensorOptions(at::kLong));
  const auto hidden = [&] { return at::randn({9, student.config().width}); };
  TrainableOutput output;
  output.predictions = {{.model = &student, .hidden = hidden(), .labels = labels, .weight = 0.75},
                        {.model = &student, .hidden = hidden(), .labels = labels, .weight = 0.25}};
  TableTeacher teacher(at::randn({9, vocabulary}));
  const DistillOptions options{.lambda = 0.25};
  const Loss loss = distillation_of(output, teacher, vocabulary, options);
  EXPECT_EQ(teacher.blocks, 1);
  EXPECT_EQ(loss.count, 9);
  double expected = 0;
  for (const Predictions& predictions : output.predictions) {
    const Targets targets{.labels = {labels, at::arange(9, labels.options())}};
    expected += predictions.weight * linear_distillation(predictions.hidden, model::head_weight(student), targets,
                                                         teacher, {student.config(), vocabulary}, options)
                                         .item<double>();
  }
  EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-4);
}

TEST(Objectives, AnUnknownNameIsAnErrorThatNamesTheKnown) {
  EXPECT_THAT(error_of([] { make_objective({.name = "cross_entropi", .cross_entropy = {}}); }),
              testing::HasSubstr("cross_entropy"));
}

TEST(CrossEntropy, PredictionCountsWithoutSmoothing) {
  at::manual_seed(3);
  const Term term = random_term(9, {random_leaf({11, kWidth})}, 1);
  const at::NoGradGuard no_grad;
  const Prediction prediction = predict(term.hidden, term.head, term.labels);
  const at::Tensor logits = term.hidden.mm(term.head.weight.t());
  const at::Tensor nll = -logits.log_softmax(1).gather(1, term.labels.unsqueeze(1)).sum();
  EXPECT_NEAR(prediction.loss.sum.item<double>(), nll.item<double>(), 1e-10);
  EXPECT_TRUE(prediction.arg_maxs.equal(logits.argmax(1)));
  EXPECT_EQ(prediction.loss.count, 9);
}

// A frozen primary or a teacher in bf16, in training and in validation. A bf16 step is .06 to .125 where |z| is 8 to
// 32, which is that share of a probability.
TEST(LogitPrecision, PredictionsOfABf16ModelHaveFp32Logits) {
  const at::NoGradGuard no_grad;
  model::TransformerModel model(tiny_config(), 5);
  at::Tensor head = model.parameters().at("head.weight");
  head.copy_(random_tensor(head.sizes(), 2).mul(3));
  model.to(at::kCPU, at::kBFloat16);
  const at::Tensor hidden = random_tensor({40, head.size(1)}, 1).to(at::kBFloat16);
  const at::Tensor found = logits({.model = &model, .hidden = hidden, .labels = {}}, hidden);
  EXPECT_EQ(found.scalar_type(), at::kFloat);
  const at::Tensor exact = hidden.to(at::kDouble).mm(model.parameters().at("head.weight").to(at::kDouble).t());
  ASSERT_GT(largest(exact), 8);
  EXPECT_LT(difference(found.softmax(1), exact.softmax(1)), 1e-4);
  EXPECT_GT(difference(exact.to(at::kBFloat16).to(at::kDouble).softmax(1), exact.softmax(1)), 1e-3) << "cannot fail";
}

at::Tensor bf16_numbers(at::IntArrayRef shape, const char* stream) {
  return normal_tensor(shape, 1, 3, stream, at::kFloat).to(at::kBFloat16);
}

TEST(WideProduct, GradientOfTheMatrixIsWrittenAndAdded) {
  const at::Tensor slope = bf16_numbers({37, 211}, "slope"), rows = bf16_numbers({37, 19}, "rows");
  if (!multiplies_wide(rows)) GTEST_SKIP() << "this processor has no products of bf16";
  const at::Tensor expected = slope.to(at::kFloat).t().mm(rows.to(at::kFloat));
  at::Tensor out = at::full({211, 19}, std::numeric_limits<float>::quiet_NaN());
  wide_gradient_into(out, slope, rows, false);
  EXPECT_LT((out - expected).abs().max().item<float>(), 1e-4);
  wide_gradient_into(out, slope, rows, true);
  EXPECT_LT((out - 2 * expected).abs().max().item<float>(), 1e-4);
}

}  // namespace
}  // namespace draftsmith::train
