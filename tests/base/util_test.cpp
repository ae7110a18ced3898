// The exponential of vectorised loops against the library's.
#include "base/util.h"

#include <limits>

#include <gtest/gtest.h>

namespace draftsmith {
namespace {

TEST(VectorMath, ExponentialFollowsTheLibraryBelowZero) {
  for (float x = -86.9F; x <= 0; x += 0.0371F) EXPECT_NEAR(exponential(x) / std::exp(x), 1.0F, 4e-7F) << x;
  EXPECT_EQ(exponential(0.0F), 1.0F);
  EXPECT_EQ(exponential(-87.5F), 0.0F);
  EXPECT_EQ(exponential(-std::numeric_limits<float>::infinity()), 0.0F);
}

// A conversion of NaN to an integer is undefined; the sanitizer's build finds it here.
TEST(VectorMath, ExponentialOfNanIsNan) {
  for (const float nan : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_TRUE(std::isnan(exponential(nan)));
  }
  EXPECT_TRUE(std::isnan(exponential(std::numeric_limits<double>::quiet_NaN())));
}

}  // namespace
}  // namespace draftsmith
