// Tables of position bias against the bias of all pairs of positions.
#include "model/transformer/position_bias.h"

#include <gtest/gtest.h>

#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

PositionBias bias_of(Positions positions, bool bidirectional) {
  TransformerConfig config = tiny_t5();
  config.positions = positions;
  return {config, random_tensor({config.relative_buckets, config.heads}, 1), bidirectional, at::zeros({1})};
}

TEST(PositionBias, ByDistanceHoldsTheFullBias) {
  for (const PositionBias& bias : {bias_of(Positions::kRelativeBias, true), bias_of(Positions::kRelativeBias, false),
                                   bias_of(Positions::kAlibi, false)}) {
    for (const int64_t n : {1, 2, 5, 40}) {
      const at::Tensor full = bias.full(n, n)[0];    // [H,n,n]
      const at::Tensor table = bias.by_distance(n);  // [H,2n-1]
      ASSERT_EQ(table.sizes(), (std::vector<int64_t>{full.size(0), 2 * n - 1}));
      for (int64_t t = 0; t < n; ++t) EXPECT_TRUE(at::equal(table.narrow(1, n - 1 - t, n), full.select(1, t))) << n;
      EXPECT_TRUE(at::equal(table.narrow(1, 0, n), bias.reversed_table(n))) << n;
    }
  }
}

TEST(PositionBias, ReversedTablesMayHoldLaterKeys) {
  const PositionBias bias = bias_of(Positions::kAlibi, false);
  EXPECT_TRUE(at::equal(bias.reversed_table(6, 3), bias.by_distance(6).narrow(1, 0, 9)));
}

TEST(PositionBias, OfNoPositionsOrOfRotationsIsNone) {
  EXPECT_EQ(bias_of(Positions::kRelativeBias, true).by_distance(0).numel(), 0);
  EXPECT_FALSE(bias_of(Positions::kRotary, false).by_distance(3).defined());
}

}  // namespace
}  // namespace draftsmith::model
