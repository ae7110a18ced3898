#include "base/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/errors.h"

namespace draftsmith {
namespace {

using testing::HasSubstr;

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

TEST(Device, SynchronizesAndDescribesTheCpu) {
  synchronize(c10::Device(c10::kCPU));
  EXPECT_FALSE(device_description(c10::Device(c10::kCPU)).empty());
}

TEST(MatmulPrecision, HasTwoNames) {
  set_matmul_precision("high");
  EXPECT_TRUE(at::globalContext().allowTF32CuBLAS());
  EXPECT_EQ(at::globalContext().allowBF16ReductionCuBLAS(), at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK);
  set_matmul_precision("highest");
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
  EXPECT_NE(at::globalContext().allowBF16ReductionCuBLAS(), at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK);
  EXPECT_THROW(set_matmul_precision("tf32"), UserError);
}

TEST(Dtype, NamesGoBothWays) {
  for (const char* name : {"fp32", "bf16", "fp16", "fp64"}) EXPECT_EQ(dtype_name(parse_dtype(name)), name);
  EXPECT_EQ(parse_dtype("bf16"), c10::ScalarType::BFloat16);
  EXPECT_THROW(parse_dtype("float32"), UserError);
}

TEST(Threads, AreSetOrLeft) {
  const int64_t before = at::get_num_threads();
  EXPECT_EQ(set_threads(0), before);
  EXPECT_EQ(set_threads(3), 3);
  EXPECT_EQ(set_threads(before), before);
}

}  // namespace
}  // namespace draftsmith
