#include "base/device_kernels.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/captured_log.h"
#include "tests/support/errors.h"
#include "tests/support/scoped_variable.h"

namespace draftsmith {
namespace {

bool has_gpu() {
  return at::hasCUDA() && at::detail::getCUDAHooks().getNumGPUs() > 0;
}

KernelSource lone_source(std::string_view text) {
  return {.main = {"test.cu", text}, .headers = {}, .options = {}};
}

TEST(DeviceKernels, AreOfNoUseOnTheCpu) {
  DeviceKernels kernels(lone_source(""));
  EXPECT_EQ(kernels.find(at::kCPU, "set"), nullptr);
}

TEST(DeviceKernels, WithoutAGpuGiveOneWarning) {
  if (has_gpu() || !at::detail::getCUDAHooks().isBuilt()) GTEST_SKIP() << "needs LibTorch for CUDA, and no GPU";
  const CapturedLog log;
  DeviceKernels kernels(lone_source("extern \"C\" __global__ void set(int* x) { x[0] = 1; }"));
  DeviceKernels others(lone_source("extern \"C\" __global__ void get(int* x) { x[0] = 2; }"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(kernels.find(c10::Device(at::kCUDA, 0), "set"), nullptr);
    EXPECT_EQ(others.find(c10::Device(at::kCUDA, 0), "get"), nullptr);
  }
  EXPECT_EQ(log.warnings(), 1u) << log.text();
  EXPECT_THAT(log.text(), testing::HasSubstr("LibTorch's operators run in place"));
}

TEST(DeviceKernels, SwitchedOffGiveNoWarning) {
  want_own_kernels(false);
  const CapturedLog log;
  DeviceKernels kernels(lone_source("no source"));
  EXPECT_EQ(kernels.find(c10::Device(at::kCUDA, 0), "set"), nullptr);
  EXPECT_EQ(log.text(), "");
  want_own_kernels(true);
}

TEST(DeviceKernels, ThatCannotBeUsedAreErrorsOfAStrictDevice) {
  if (has_gpu()) GTEST_SKIP() << "needs a machine without a GPU";
  const ScopedVariable strict("DRAFTSMITH_STRICT_DEVICE", "1");
  DeviceKernels kernels(lone_source("extern \"C\" __global__ void set(int* x) { x[0] = 1; }"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(error_of<RunError>([&] { kernels.find(c10::Device(at::kCUDA, 0), "set"); }),
                testing::HasSubstr("in place of own GPU kernels"));
  }
}

TEST(CudaRuntimeFunctions, AreInTheProcessOfALibTorchForCuda) {
  if (!at::detail::getCUDAHooks().isBuilt()) GTEST_SKIP() << "LibTorch was built without CUDA";
  const CudaRuntime runtime = cuda_runtime();
  EXPECT_NE(runtime.launch, nullptr);
  EXPECT_STREQ(runtime.error_text(0), "no error");
}

TEST(DeviceKernelsGpu, LaunchOnTheCurrentStream) {
  if (!has_gpu()) GTEST_SKIP() << "no CUDA device";
  DeviceKernels kernels(
      lone_source("extern \"C\" __global__ void add(const float* x, float* y, float n, long long size) {"
                  "  const long long i = blockIdx.x * 32ll + threadIdx.x;"
                  "  if (i < size) y[i] = x[i] + n; }"));
  const at::Tensor x = at::arange(100, at::TensorOptions(at::kFloat).device(at::kCUDA));
  const at::Tensor y = at::zeros_like(x);
  const void* kernel = kernels.find(x.device(), "add");
  ASSERT_NE(kernel, nullptr);
  kernels.launch(kernel, x.device(), {4}, {32}, x.const_data_ptr(), y.mutable_data_ptr(), 2.0F, 100LL);
  EXPECT_TRUE(at::equal(y.cpu(), x.cpu() + 2));
}

TEST(DeviceKernelsGpu, ASourceWithAnErrorGivesAWarningAndNoKernel) {
  if (!has_gpu()) GTEST_SKIP() << "no CUDA device";
  const ScopedVariable strict("DRAFTSMITH_STRICT_DEVICE", "0");
  const CapturedLog log;
  DeviceKernels kernels(lone_source("extern \"C\" __global__ void add(float* x) { x[0] = nothing; }"));
  EXPECT_EQ(kernels.find(c10::Device(at::kCUDA, 0), "add"), nullptr);
  EXPECT_EQ(kernels.find(c10::Device(at::kCUDA, 0), "add"), nullptr);
  EXPECT_EQ(log.warnings(), 1u) << log.text();
}

}  // namespace
}  // namespace draftsmith
