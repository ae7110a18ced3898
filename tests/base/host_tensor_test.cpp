#include <gtest/gtest.h>

#include "base/device_tensors.h"

namespace draftsmith {
namespace {

TEST(HostTensor, IsContiguousAndOfItsType) {
  for (const at::ScalarType type : {at::kLong, at::kBool, at::kFloat, at::kDouble}) {
    const at::Tensor tensor = host_empty({2, 0, 3}, type);
    EXPECT_EQ(tensor.sizes(), at::IntArrayRef({2, 0, 3}));
    EXPECT_EQ(tensor.scalar_type(), type);
    EXPECT_TRUE(tensor.is_cpu() && tensor.is_contiguous());
  }
}

TEST(HostTensor, ViewsShareNumbersAndKeepTheirPlace) {
  const at::Tensor whole = at::arange(24, at::kLong).view({2, 3, 4});
  at::Tensor view = viewed(whole.select(0, 1), {12});
  EXPECT_TRUE(at::equal(view, at::arange(12, 24, at::kLong)));
  view.fill_(7);
  EXPECT_EQ(whole[1][2][3].item<int64_t>(), 7);
  EXPECT_EQ(whole[0][2][3].item<int64_t>(), 11);
}

TEST(HostTensor, ViewsAreThoseOfLibTorch) {
  const at::Tensor whole = at::arange(24, at::kFloat).view({2, 3, 4});
  const at::Tensor gaps = whole.narrow(1, 2, 1);  // [2,1,4], not contiguous
  EXPECT_TRUE(at::equal(viewed(gaps, {2, 4}), gaps.select(1, 0)));
  EXPECT_TRUE(at::equal(viewed(whole, {-1, 4}), whole.view({-1, 4})));
  EXPECT_THROW(viewed(whole, {5, 5}), c10::Error);
}

}  // namespace
}  // namespace draftsmith
