// What the other suites rely on the stand-in accelerator to show: reads of the host, waits, and what recorded work
// reads.
#include <cstdio>
#include <stdexcept>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/device_graph.h"
#include "tests/device/device.h"
#include "tests/standin/internals.h"

namespace draftsmith::standin {
namespace {

// Not where a GPU is tested, whose place the stand-in would take.
class Standin : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_device::on_standin()) GTEST_SKIP() << "another device is tested";
  }
};
using StandinDeathTest = Standin;

at::Tensor filled(int64_t size, double value) {
  return at::full({size}, value, at::TensorOptions().device(device()));
}

TEST_F(StandinDeathTest, TheHostCannotReadDeviceMemory) {
  const at::Tensor x = filled(4, 1);
  const float* values = x.const_data_ptr<float>();
  EXPECT_DEATH(std::printf("%f", static_cast<double>(values[0])), "");
}

TEST_F(Standin, WaitsAndCopiesOfTheHostCannotBeRecorded) {
  const at::Tensor x = filled(4, 1);
  MemoryPool pool;
  const Recording recording(pool);
  EXPECT_THROW(x.nonzero(), std::logic_error);
  EXPECT_THROW(x.to(at::kCPU), std::logic_error);
  EXPECT_THROW(at::ones({4}).to(device(), /*non_blocking=*/true), std::logic_error);
}

// As a CUDA graph, which holds addresses.
TEST_F(Standin, ReplaysReadWhatLiesThereThen) {
  at::Tensor read = filled(1000, 1);
  const at::Tensor runs = filled(1, 0);
  at::Tensor sum;
  WorkMemory memory;
  const auto work = record_graph(device(), memory, [&] {
    sum = read + 1;
    runs.add_(1);
  });
  ASSERT_NE(work, nullptr);
  EXPECT_EQ(runs.item<float>(), 0) << "recording does nothing";
  work->replay();
  EXPECT_EQ(sum[999].item<float>(), 2);
  const void* address = read.const_data_ptr();
  read.reset();
  work->replay();
  EXPECT_TRUE(sum.to(at::kCPU).isnan().all().item<bool>());
  const at::Tensor other = filled(1000, 5);
  ASSERT_EQ(other.const_data_ptr(), address);
  work->replay();
  EXPECT_EQ(sum[999].item<float>(), 6);
  EXPECT_EQ(runs.item<float>(), 3);
}

}  // namespace
}  // namespace draftsmith::standin
