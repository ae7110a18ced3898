// Window rules answer on the CPU without operators of LibTorch. Their answers are those of the operators.
#include <limits>

#include <gtest/gtest.h>

#include "infer/windows/dynamic.h"
#include "infer/windows/entropy.h"
#include "infer/windows/fallback.h"

namespace draftsmith::infer {
namespace {

class RowAnswers : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  // [40,30] the last row without numbers
  static at::Tensor logits() {
    at::manual_seed(3);
    at::Tensor values = at::randn({40, 30}, at::kDouble) * 3;
    values[39].fill_(std::numeric_limits<double>::quiet_NaN());
    return values.to(GetParam());
  }
};

TEST_P(RowAnswers, OfFallbackAreThoseOfTheOperators) {
  const at::Tensor sure = confidence(logits());
  const double middle = sure[7].item<double>();  // exactly at the edge: it goes on
  const at::Tensor answers = FallbackWindow(middle, 5).go_on({logits(), {}});
  EXPECT_TRUE(at::equal(answers, sure.lt(middle).logical_not()));
  EXPECT_TRUE(answers[7].item<bool>());
  EXPECT_TRUE(answers[39].item<bool>());
  EXPECT_FALSE(answers.all().item<bool>());
}

TEST_P(RowAnswers, OfDynamicAreThoseOfTheOperators) {
  const at::Tensor tokens = at::arange(40, at::kLong).remainder(30);
  const at::Tensor sure = token_log_probability(logits(), tokens);
  const double chance = std::exp(sure[7].item<double>());
  DynamicWindow window({.confidence = chance});
  const at::Tensor answers = window.go_on({logits(), tokens});
  EXPECT_TRUE(at::equal(answers, sure.ge(std::log(chance))));
  EXPECT_FALSE(answers[39].item<bool>());
  EXPECT_TRUE(answers.any().item<bool>());
}

TEST_P(RowAnswers, OfEntropyAreThoseOfTheOperators) {
  const at::Tensor nats = entropy(logits());
  const double middle = nats[7].item<double>();
  const at::Tensor answers = EntropyWindow(middle, 5).go_on({logits(), {}});
  EXPECT_TRUE(at::equal(answers, nats.le(middle)));
  EXPECT_TRUE(answers[7].item<bool>());
  EXPECT_FALSE(answers[39].item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Types, RowAnswers, ::testing::Values(at::kFloat, at::kDouble, at::kBFloat16));

}  // namespace
}  // namespace draftsmith::infer
