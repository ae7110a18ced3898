// The source of the kernel of places, run on the host: it equals the CPU's operator, and that what the host packs.
#include <gtest/gtest.h>

#include "model/layers/step_places.h"
#include "tests/support/cuda_shim.h"
#include "tests/support/kernel_gate.h"
// The shim comes first.
#include "model/layers/kernels/step_places.cu"

namespace draftsmith::model {
namespace {

using Whole = const long long*;

TEST(StepPlacesSource, EqualsTheCpusPlaces) {
  const at::Tensor base = at::tensor({4, 0, 9, 7}, at::kLong);
  const at::Tensor rows = at::tensor({3, 0, 2, 1, 1, 1, 0, 0, 5, 5, 8, 8}, at::kLong).view({3, 4});
  for (const int64_t tokens : {1, 5, 100}) {
    const at::Tensor fresh = at::tensor({int64_t{1}, tokens, int64_t{0}, std::min<int64_t>(tokens, 3)}, at::kLong);
    const at::Tensor expected = step_places(base, fresh, rows, tokens, 33);
    const at::Tensor packed = at::full_like(expected, -7);
    cuda_shim::run_grid({static_cast<unsigned>((4 * tokens + 255) / 256)}, {256}, [&] {
      ::step_places(static_cast<Whole>(base.const_data_ptr()), static_cast<Whole>(fresh.const_data_ptr()),
                    static_cast<Whole>(rows.const_data_ptr()), static_cast<long long*>(packed.mutable_data_ptr()), 4,
                    tokens, 33);
    });
    EXPECT_TRUE(packed.equal(expected)) << tokens;
  }
}

TEST(StepPlacesSource, CompilesForGpus) {
  if (const auto missing = nvrtc_missing()) GTEST_SKIP() << *missing;
  expect_good_kernels(step_places_source(), 1, 64);
}

}  // namespace
}  // namespace draftsmith::model
