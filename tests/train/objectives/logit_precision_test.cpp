// Logits of half-precision products before a softmax: a bf16 step is .06 to .125 where |z| is 8 to 32, which is that
// share of a probability.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/support/tensors.h"
#include "tests/train/fixtures.h"
#include "train/objectives/linear_loss.h"

namespace draftsmith::train {
namespace {

constexpr double kProbabilityTolerance = 1e-4;
constexpr double kRoundingOfBf16 = 1e-2;  // what the tolerance must tell from fp32

// Records the logits of all positions, and leaves them as the gradient.
class RecordedLogits : public LogitLoss {
 public:
  at::Tensor rows(at::Tensor& logits, const PositionRange& /*rows*/, bool /*gradient*/) override {
    seen.push_back(logits.clone());
    return logits.sum();
  }
  at::Tensor all() const { return at::cat(seen); }

  std::vector<at::Tensor> seen;
};

// Largest relative error of probabilities above a millionth.
double error_of_probabilities(const at::Tensor& logits, const at::Tensor& exact) {
  const at::Tensor p = logits.to(at::kDouble).softmax(1), expected = exact.to(at::kDouble).softmax(1);
  return at::where(expected.gt(1e-6), (p - expected).abs() / expected, 0.0).max().item<double>();
}

void expect_fp32(const at::Tensor& logits, const at::Tensor& exact) {
  const double size = largest(exact);
  ASSERT_GT(size, 8);
  ASSERT_LT(size, 64);
  EXPECT_GE(error_of_probabilities(exact.to(at::kBFloat16), exact), kRoundingOfBf16) << "the test cannot fail";
  EXPECT_LE(error_of_probabilities(logits, exact), kProbabilityTolerance);
}

at::Tensor product(const at::Tensor& hidden, const at::Tensor& weight) {
  return hidden.to(at::kDouble).mm(weight.to(at::kDouble).t());
}

TEST(LogitPrecision, LossesReadFp32LogitsOfBf16Products) {
  const at::Tensor hidden = random_tensor({40, 32}, 1).to(at::kBFloat16);
  const at::Tensor weight = random_tensor({300, 32}, 2).mul(1.5).to(at::kBFloat16);
  RecordedLogits loss;
  linear_loss({{.hidden = hidden, .head = {.weight = weight}, .loss = &loss}});
  expect_fp32(loss.all(), product(hidden, weight));
}

TEST(LogitPrecision, LowRankHeadsToo) {
  const at::Tensor hidden = random_tensor({40, 32}, 1).to(at::kBFloat16);
  const at::Tensor weight = random_tensor({300, 32}, 2).to(at::kBFloat16);
  const at::Tensor down = random_tensor({4, 32}, 3).mul(0.3).to(at::kBFloat16);
  const at::Tensor up = random_tensor({300, 4}, 4).to(at::kBFloat16);
  RecordedLogits loss;
  linear_loss({{.hidden = hidden, .head = {.weight = weight, .down = down, .up = up}, .loss = &loss}});
  expect_fp32(loss.all(), product(hidden, weight) + product(at::linear(hidden, down), up));
}

TEST(LogitPrecision, GradientsKeepTheTypeOfTheirTensors) {
  const at::Tensor hidden = random_tensor({40, 32}, 1).to(at::kBFloat16).requires_grad_(true);
  const at::Tensor weight = random_tensor({300, 32}, 2).to(at::kBFloat16).requires_grad_(true);
  RecordedLogits loss;
  linear_loss({{.hidden = hidden, .head = {.weight = weight}, .loss = &loss}}).backward();
  EXPECT_EQ(hidden.grad().scalar_type(), at::kBFloat16);
  const at::Tensor logits = product(hidden.detach(), weight.detach());
  const at::Tensor expected = logits.mm(weight.detach().to(at::kDouble));
  EXPECT_LT(difference(hidden.grad(), expected), 0.02 * largest(expected));
}

// A frozen primary or a teacher in bf16, in training and in validation.
TEST(LogitPrecision, PredictionsOfABf16ModelHaveFp32Logits) {
  const at::NoGradGuard no_grad;
  model::TransformerModel model(tiny_config(), 5);
  at::Tensor head = model.parameters().at("head.weight");
  head.copy_(random_tensor(head.sizes(), 2).mul(3));
  model.to(at::kCPU, at::kBFloat16);
  const at::Tensor hidden = random_tensor({40, head.size(1)}, 1).to(at::kBFloat16);
  const at::Tensor found = logits({.model = &model, .hidden = hidden, .labels = {}}, hidden);
  EXPECT_EQ(found.scalar_type(), at::kFloat);
  expect_fp32(found, product(hidden, model.parameters().at("head.weight")));
}

TEST(LogitPrecisionGpu, LossesReadFp32LogitsOfBf16Products) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const at::Tensor hidden = random_tensor({40, 32}, 1).to(at::kCUDA, at::kBFloat16);
  const at::Tensor weight = random_tensor({300, 32}, 2).mul(1.5).to(at::kCUDA, at::kBFloat16);
  RecordedLogits loss;
  linear_loss({{.hidden = hidden, .head = {.weight = weight}, .loss = &loss}});
  expect_fp32(loss.all().cpu(), product(hidden, weight).cpu());
}

}  // namespace
}  // namespace draftsmith::train
