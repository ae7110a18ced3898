// Devices by their names, own kernels on them, small tensors on the host, and the machine.
#include "base/device.h"

#include <optional>
#include <string>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gmock/gmock.h>

#include "base/device_kernels.h"
#include "base/device_tensors.h"
#include "base/environment.h"
#include "base/error.h"
#include "tests/support/captured_log.h"
#include "tests/support/errors.h"
#include "tests/support/scoped_variable.h"

namespace draftsmith {
namespace {

int gpus() {
  return at::hasCUDA() ? at::detail::getCUDAHooks().getNumGPUs() : 0;
}

std::string choice_error(const std::string& device) {
  return error_of([&] { choose_device(device); });
}

TEST(Device, WordsAreUnderstood) {
  EXPECT_TRUE(choose_device("cpu").is_cpu());
  EXPECT_EQ(choose_device("auto").is_cuda(), gpus() > 0);
  for (const char* bad : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:999", "CPU", ""}) {
    EXPECT_THAT(choice_error(bad), HasSubstr("--device: unknown device")) << bad;
  }
}

TEST(Device, AutoTakesNoGpuThatIsOldOrFails) {
  bool tried = false;
  EXPECT_THAT(reason_against_gpu([] { return 70; }, [&] { tried = true; }).value(),
              HasSubstr("capability is 7.0, and 7.5"));
  EXPECT_FALSE(tried);
  EXPECT_EQ(reason_against_gpu([] { return 75; }, [&] { tried = true; }), std::nullopt);
  EXPECT_TRUE(tried);
  EXPECT_THAT(reason_against_gpu([] { return 90; },
                                 [] {
                                   throw RunError({"CUDA", "no kernel image", "", "", ""});
                                 })
                  .value(),
              HasSubstr("no kernel image"));
  const auto unreadable = []() -> int { throw RunError({"CUDA", "the architecture cannot be read", "", "", ""}); };
  EXPECT_THAT(reason_against_gpu(unreadable, [] {}).value(), HasSubstr("cannot be read"));
}

TEST(Device, AMissingGpuIsExplained) {
  if (gpus() > 0) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THAT(choice_error("cuda"), HasSubstr("no CUDA device is available"));
#ifdef DRAFTSMITH_TORCH_CUDA
  EXPECT_THAT(choice_error("cuda"), HasSubstr("no usable NVIDIA GPU or driver"));
#else
  EXPECT_THAT(choice_error("cuda"), HasSubstr("built without CUDA"));
#endif
  EXPECT_THAT(choice_error("cuda:1"), HasSubstr("use --device cpu"));
}

TEST(DeviceGpu, IndicesBeyondTheLastAreExplained) {
  if (gpus() == 0) GTEST_SKIP() << "no CUDA device";
  EXPECT_EQ(choose_device("cuda:0").index(), 0);
  EXPECT_THAT(choice_error("cuda:100"), HasSubstr("there is no such CUDA device"));
}

TEST(Products, AreExactOnGpus) {
  at::globalContext().setAllowTF32CuBLAS(true);
  use_exact_products();
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
  EXPECT_NE(at::globalContext().allowBF16ReductionCuBLAS(), at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK);
}

TEST(Dtype, NamesGoBothWays) {
  for (const char* name : {"fp32", "bf16", "fp16", "fp64"}) EXPECT_EQ(dtype_name(parse_dtype(name)), name);
  EXPECT_EQ(parse_dtype("bf16"), c10::ScalarType::BFloat16);
  EXPECT_THROW(parse_dtype("float32"), UserError);
}

KernelSource lone_source(std::string_view text) {
  return {.main = {"test.cu", text}, .headers = {}, .options = {}};
}

TEST(DeviceKernels, WithoutAGpuGiveOneWarning) {
  if (gpus() > 0 || !at::detail::getCUDAHooks().isBuilt()) GTEST_SKIP() << "needs LibTorch for CUDA, and no GPU";
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

TEST(DeviceKernels, ThatCannotBeUsedAreErrorsOfAStrictDevice) {
  if (gpus() > 0) GTEST_SKIP() << "needs a machine without a GPU";
  const ScopedVariable strict("DRAFTSMITH_STRICT_DEVICE", "1");
  DeviceKernels kernels(lone_source("extern \"C\" __global__ void set(int* x) { x[0] = 1; }"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(error_of<RunError>([&] { kernels.find(c10::Device(at::kCUDA, 0), "set"); }),
                testing::HasSubstr("in place of own GPU kernels"));
  }
}

TEST(DeviceKernelsGpu, LaunchOnTheCurrentStream) {
  if (gpus() == 0) GTEST_SKIP() << "no CUDA device";
  DeviceKernels kernels(
      lone_source("extern \"C\" __global__ void add(const float* x, float* y, float n, long long size) {"
                  "  const long long i = blockIdx.x * 32ll + threadIdx.x;"
                  "  if (i < size) y[i] = x[i] + n; }"));
  const at::Tensor x = at::arange(100, at::TensorOptions(at::kFloat).device(at::kCUDA)), y = at::zeros_like(x);
  const void* kernel = kernels.find(x.device(), "add");
  ASSERT_NE(kernel, nullptr);
  kernels.launch(kernel, x.device(), {4}, {32}, x.const_data_ptr(), y.mutable_data_ptr(), 2.0F, 100LL);
  EXPECT_TRUE(at::equal(y.cpu(), x.cpu() + 2));
}

TEST(HostTensor, ViewsAreThoseOfLibTorch) {
  const at::Tensor whole = at::arange(24, at::kFloat).view({2, 3, 4});
  const at::Tensor gaps = whole.narrow(1, 2, 1);  // [2,1,4], not contiguous
  EXPECT_TRUE(at::equal(viewed(gaps, {2, 4}), gaps.select(1, 0)));
  EXPECT_TRUE(at::equal(viewed(whole, {-1, 4}), whole.view({-1, 4})));
  EXPECT_THROW(viewed(whole, {5, 5}), c10::Error);
}

TEST(Environment, NamesBuildAndMachine) {
  EXPECT_THAT(version(), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(git_commit(), testing::MatchesRegex("unknown|[0-9a-f]+[+]?"));
  EXPECT_THAT(now_utc(), testing::MatchesRegex("20[0-9-]+T[0-9:]+Z"));
  EXPECT_GE(cpu_cores(), 1);
}

TEST(ProcessorUse, CountsTheGivenProcessorsBusyTimes) {
  const std::string stat =
      "cpu  600 60 66 5000 500 6 6 6 0 0\ncpu0 100 10 11 1000 100 1 2 3 50 0\ncpu1 200 20 22 2000 200 2 2 2 0 0\n"
      "cpu11 300 30 33 2000 200 3 2 1 0 0\nintr 5 5\n";
  EXPECT_DOUBLE_EQ(busy_seconds(stat, {0}, 100), 1.27);
  EXPECT_DOUBLE_EQ(busy_seconds(stat, {1, 0}, 100), 3.75);
  const std::optional<ProcessorTimes> times = processor_times();
  EXPECT_TRUE(!times || (times->wall > 0 && times->busy > 0 && times->own > 0));
}

}  // namespace
}  // namespace draftsmith
