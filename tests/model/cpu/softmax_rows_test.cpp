// Softmax of rows of any length against fp64.
#include "model/cpu/softmax_rows.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_scores(int64_t count) {
  const at::Tensor scores = 4 * random_tensor({count}, 1);
  const float* data = scores.const_data_ptr<float>();
  return {data, data + count};
}

TEST(SoftmaxRows, IsThatOfFp64ForRowsOfAnyLength) {
  for (int64_t columns = 1; columns <= 70; ++columns) {
    for (const int64_t rows : {1, 2, 3, 23}) {
      const auto count = static_cast<size_t>(rows * columns);
      std::vector<float> scores = random_scores(rows * columns);
      if (columns > 3) scores[static_cast<size_t>(columns - 2)] = -1e30F;  // a hidden key
      const at::Tensor expected = at::from_blob(scores.data(), {rows, columns}, at::kFloat).to(at::kDouble).softmax(-1);
      scores.push_back(7);
      softmax_rows(scores.data(), rows, columns);
      EXPECT_EQ(scores.back(), 7) << "writes beyond its end";
      const at::Tensor found = at::from_blob(scores.data(), {rows, columns}, at::kFloat);
      EXPECT_LT(difference(found, expected), 1e-6) << rows << " rows of " << columns;
      ASSERT_EQ(scores.size(), count + 1);
    }
  }
}

TEST(SoftmaxRows, NanAndRowsWithoutAFiniteNumberSpoilTheirOwnRowAlone) {
  for (const int64_t columns : {5, 16, 21, 40}) {
    const auto width = static_cast<size_t>(columns);
    std::vector<float> scores(5 * width, 1.0F);
    scores[width + 2] = kNan;
    std::fill_n(scores.begin() + 3 * columns, columns, -kInfinity);
    softmax_rows(scores.data(), 5, columns);
    for (size_t i = 0; i < scores.size(); ++i) {
      const bool spoiled = i / width == 1 || i / width == 3;
      EXPECT_EQ(std::isnan(scores[i]), spoiled) << "row " << i / width << " of " << columns;
      if (spoiled) continue;
      EXPECT_NEAR(scores[i], 1.0 / static_cast<double>(columns), 1e-7);
    }
  }
}

}  // namespace
}  // namespace draftsmith::model
