#include <gtest/gtest.h>

#include "base/kernel_loader.h"
#include "tests/support/captured_log.h"
#include "tests/support/errors.h"
#include "tests/support/kernel_gate.h"
#include "tests/support/scoped_variable.h"

namespace draftsmith {
namespace {

KernelSource source_of(std::string_view text) {
  return {.main = {"test.cu", text}, .headers = {{"tests/number.cuh", "constexpr int kNumber = 7;\n"}}, .options = {}};
}

TEST(Nvrtc, CompilesASourceWithItsHeaders) {
  if (const auto reason = nvrtc_missing()) GTEST_SKIP() << *reason;
  const Nvrtc compiler;
  EXPECT_FALSE(compiler.capabilities().empty());
  const CompiledKernels compiled = compiler.compile(
      source_of("#include \"tests/number.cuh\"\nextern \"C\" __global__ void set(int* x) { x[0] = kNumber; }"),
      "sm_80");
  EXPECT_TRUE(compiled.cubin.starts_with("\177ELF"));
  ASSERT_EQ(kernel_uses(compiled.log).size(), 1u);
  EXPECT_EQ(kernel_uses(compiled.log)[0].kernel, "set");
}

TEST(Nvrtc, AnErrorInTheSourceIsAnErrorWithTheLog) {
  if (const auto reason = nvrtc_missing()) GTEST_SKIP() << *reason;
  const Nvrtc compiler;
  const std::string message = error_of<RunError>(
      [&] { compiler.compile(source_of("extern \"C\" __global__ void set(int* x) { x[0] = missing; }"), "sm_90"); });
  EXPECT_THAT(message, testing::HasSubstr("test.cu"));
  EXPECT_THAT(message, testing::HasSubstr("sm_90"));
  EXPECT_THAT(message, testing::HasSubstr("identifier \"missing\" is undefined"));
  EXPECT_THAT(error_of<RunError>([&] { compiler.compile(source_of(""), "sm_1"); }), testing::HasSubstr("sm_1"));
}

TEST(Nvrtc, AMissingLibraryIsAnErrorThatNamesTheVariable) {
  const std::string message = error_of<RunError>([] { Nvrtc("/nowhere/libnvrtc.so"); });
  EXPECT_THAT(message, testing::HasSubstr("/nowhere/libnvrtc.so"));
  EXPECT_THAT(message, testing::HasSubstr("DRAFTSMITH_NVRTC"));
  const ScopedVariable variable("DRAFTSMITH_NVRTC", "/elsewhere/libnvrtc.so");
  EXPECT_THAT(error_of<RunError>([] { Nvrtc(); }), testing::HasSubstr("/elsewhere/libnvrtc.so"));
}

TEST(Nvrtc, ALibraryThatIsAnotherIsAnError) {
  EXPECT_THAT(error_of<RunError>([] { Nvrtc("libc.so.6"); }), testing::HasSubstr("nvrtcVersion"));
}

TEST(Nvrtc, ReadsTheReport) {
  const std::vector<KernelUse> uses = kernel_uses(
      "ptxas info    : Compiling entry function 'two' for 'sm_90'\n"
      "ptxas         .     40 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads\n"
      "ptxas info    : Used 255 registers, used 1 barriers, 40 bytes cumulative stack size, 4224 bytes smem\n"
      "ptxas info    : Compiling entry function 'one' for 'sm_90'\n"
      "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 10 registers, used 0 barriers\n");
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].kernel, "one");
  EXPECT_EQ(uses[0].registers, 10);
  EXPECT_EQ(uses[1].spilled, 56);
  EXPECT_EQ(uses[1].stack, 40);
  EXPECT_EQ(uses[1].shared_bytes, 4224);
  EXPECT_TRUE(kernel_uses("").empty());
}

TEST(KernelGate, DropoutCompilesWithoutSpills) {
  if (const auto reason = nvrtc_missing()) GTEST_SKIP() << *reason;
  expect_good_kernels(kernel_source(base_kernel_texts(), "base/kernels/dropout.cu", {"--fmad=false"}), 3, 40);
}

TEST(KernelTexts, AnUnknownNameIsABug) {
  EXPECT_THROW(kernel_source(base_kernel_texts(), "base/kernels/other.cu"), std::logic_error);
}

}  // namespace
}  // namespace draftsmith
