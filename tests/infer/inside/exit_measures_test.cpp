// What early exits measure: against tensor operations, and where numbers end.
#include "infer/inside/exit_measures.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/random_tensors.h"

namespace draftsmith::infer::testing {
namespace {

TEST(ExitMeasures, SimilaritiesAreCosinesOfWholeRows) {
  const at::Tensor a = normal_tensor({5, 1, 33}, 1, 1, "a", at::kDouble);
  const at::Tensor b = a + normal_tensor({5, 1, 33}, 0.7, 1, "b", at::kDouble);
  const at::Tensor expected = at::cosine_similarity(a.squeeze(1), b.squeeze(1), 1);
  const auto measured = cosine_similarities(a, b);
  ASSERT_EQ(measured.size(), 5u);
  for (int64_t row = 0; row < 5; ++row) {
    EXPECT_NEAR(measured[static_cast<size_t>(row)], expected[row].item<double>(), 1e-12);
  }
}

// Half types go through tensor operations, as everything does on a GPU.
TEST(ExitMeasures, TensorOperationsMeasureTheSame) {
  const at::Tensor a = normal_tensor({4, 1, 33}, 1, 1, "a", at::kFloat).to(at::kBFloat16);
  const at::Tensor b = a + normal_tensor({4, 1, 33}, 0.7, 1, "b", at::kFloat).to(at::kBFloat16);
  const auto similarities = cosine_similarities(a, b);
  const auto expected_similarities = cosine_similarities(a.to(at::kDouble), b.to(at::kDouble));
  const at::Tensor logits = normal_tensor({4, 50}, 2, 1, "logits", at::kFloat).to(at::kBFloat16);
  const auto margins = top_two_margins(logits);
  const auto expected_margins = top_two_margins(logits.to(at::kDouble));
  for (size_t row = 0; row < 4; ++row) {
    EXPECT_NEAR(similarities[row], expected_similarities[row], 1e-6);
    EXPECT_NEAR(margins[row], expected_margins[row], 1e-6);
  }
}

TEST(ExitMeasures, SimilaritiesAreClippedAndUndefinedForZero) {
  const at::Tensor rows = normal_tensor({200, 7}, 1, 1, "rows", at::kDouble);
  for (const double similarity : cosine_similarities(rows, rows * 3)) {
    EXPECT_LE(similarity, 1);
    EXPECT_NEAR(similarity, 1, 1e-12);
  }
  for (const double similarity : cosine_similarities(rows, -rows)) EXPECT_GE(similarity, -1);
  EXPECT_TRUE(std::isnan(cosine_similarities(rows, at::zeros_like(rows)).front()));
}

TEST(ExitMeasures, MarginsAreDifferencesOfProbabilities) {
  const at::Tensor logits = normal_tensor({6, 40}, 2, 1, "logits", at::kDouble);
  const at::Tensor best = std::get<0>(logits.softmax(1).sort(1, true));
  const auto margins = top_two_margins(logits);
  for (int64_t row = 0; row < 6; ++row) {
    EXPECT_NEAR(margins[static_cast<size_t>(row)], (best[row][0] - best[row][1]).item<double>(), 1e-12);
  }
}

TEST(ExitMeasures, MarginsOfTiesSingleTokensAndDamagedNumbers) {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  const at::Tensor logits = at::full({4, 3}, kNothing, at::kDouble);
  logits[0].fill_(2);
  logits[1][1] = 4;
  logits[2].fill_(std::numeric_limits<double>::quiet_NaN());
  const auto margins = top_two_margins(logits);
  EXPECT_EQ(margins[0], 0);
  EXPECT_EQ(margins[1], 1);
  EXPECT_TRUE(std::isnan(margins[2]));
  EXPECT_TRUE(std::isnan(margins[3]));
}

}  // namespace
}  // namespace draftsmith::infer::testing
