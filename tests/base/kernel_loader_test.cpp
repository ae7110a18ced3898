// Loading of kernels with a CUDA runtime that only records its calls.
#include "base/kernel_loader.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/sha256.h"
#include "tests/support/captured_log.h"
#include "tests/support/errors.h"
#include "tests/support/kernel_gate.h"

namespace draftsmith {
namespace {

// Requests to the recording runtime, and its answers.
struct Recorded {
  int libraries = 0;
  int kernels = 0;
  int refuses_code = 0;  // error of load_library, or 0
  int capability = 90;
} recorded;

int get_attribute(int* value, int attribute, int) {
  *value = attribute == 75 ? recorded.capability / 10 : recorded.capability % 10;
  return 0;
}
int load_library(void** library, const void* code, void*, void*, unsigned, void*, void**, unsigned) {
  EXPECT_EQ(std::memcmp(code, "\177ELF", 4), 0);
  *library = &recorded;
  ++recorded.libraries;
  return recorded.refuses_code;
}
int get_kernel(void** kernel, void*, const char* name) {
  ++recorded.kernels;
  *kernel = &recorded;
  return std::string(name) == "set" ? 0 : 500;
}
int get_function_attributes(void*, const void*) {
  return 0;
}
int launch(const LaunchConfig*, const void*, void**) {
  return 0;
}
int last_error() {
  return 0;
}
const char* error_text(int) {
  return "the runtime's text";
}

class KernelLoaderCalls : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = nvrtc_missing()) GTEST_SKIP() << *reason;
    recorded = {};
    const CudaRuntime runtime{.get_attribute = get_attribute,
                              .load_library = load_library,
                              .get_kernel = get_kernel,
                              .get_function_attributes = get_function_attributes,
                              .launch = launch,
                              .last_error = last_error,
                              .error_text = error_text};
    tools_ = std::make_shared<KernelTools>(runtime, "", folder_.path());
  }

  size_t cached_files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_.path()), {}));
  }

  TemporaryDirectory folder_;
  std::shared_ptr<KernelTools> tools_;
  KernelSource source_{
      .main = {"test.cu", "extern \"C\" __global__ void set(int* x) { x[0] = 1; }"}, .headers = {}, .options = {}};
};

TEST_F(KernelLoaderCalls, LoadASourceOnceForAllDevicesOfAnArchitecture) {
  KernelLoader loader(source_, tools_);
  EXPECT_EQ(loader.kernel(0, "set"), &recorded);
  EXPECT_EQ(loader.kernel(1, "set"), &recorded);
  EXPECT_EQ(loader.kernel(0, "set"), &recorded);
  EXPECT_EQ(recorded.libraries, 1);
  EXPECT_EQ(recorded.kernels, 1);
  recorded.capability = 80;
  EXPECT_EQ(loader.kernel(2, "set"), &recorded);
  EXPECT_EQ(recorded.libraries, 2);
  EXPECT_EQ(cached_files(), 2u);
}

TEST_F(KernelLoaderCalls, TakeACubinFromTheCache) {
  const std::string key = kernel_key(source_, "sm_90", tools_->compiler.version());
  tools_->cache.store(key, "\177ELF of the cache");
  EXPECT_EQ(cubin_of(source_, "sm_90", *tools_), "\177ELF of the cache");
  write_file_atomic(tools_->cache.file_of(key), "damaged");
  const CapturedLog log;
  const std::string compiled = cubin_of(source_, "sm_90", *tools_);
  EXPECT_GT(compiled.size(), 1000u);
  EXPECT_EQ(log.warnings(), 1u);
  EXPECT_EQ(tools_->cache.find(key), compiled);
}

TEST_F(KernelLoaderCalls, AreErrorsWhereTheRuntimeRefuses) {
  KernelLoader loader(source_, tools_);
  EXPECT_THAT(error_of<RunError>([&] { loader.kernel(0, "other"); }), testing::HasSubstr("kernel other of test.cu"));
  recorded.refuses_code = 209;
  recorded.capability = 80;
  const std::string message = error_of<RunError>([&] { loader.kernel(1, "set"); });
  EXPECT_THAT(message, testing::HasSubstr("error 209: the runtime's text"));
  EXPECT_THAT(message, testing::HasSubstr("DRAFTSMITH_KERNELS=off"));
}

// Only kernels that wait for their inputs, and only where the hardware can do it.
TEST_F(KernelLoaderCalls, LaunchEarlyWhatWaits) {
  EXPECT_FALSE(KernelLoader(source_, tools_).launches_early(0));
  tools_->early_launches = true;
  EXPECT_FALSE(KernelLoader(source_, tools_).launches_early(0));
  source_.waits_for_inputs = true;
  KernelLoader early(source_, tools_);
  EXPECT_TRUE(early.launches_early(0));
  EXPECT_EQ(early.kernel(0, "set"), &recorded);
  tools_->early_launches = false;
  EXPECT_EQ(KernelLoader(source_, tools_).kernel(0, "set"), &recorded);
  EXPECT_EQ(cached_files(), 2u) << "compiled anew";
  tools_->early_launches = true;
  recorded.capability = 80;
  EXPECT_FALSE(KernelLoader(source_, tools_).launches_early(1));
}

TEST_F(KernelLoaderCalls, CompileForTheNearestArchitectureThatTheCompilerKnows) {
  EXPECT_EQ(architecture_for(90, tools_->compiler), "sm_90");
  EXPECT_EQ(architecture_for(80, tools_->compiler), "sm_80");
  EXPECT_EQ(architecture_for(102, tools_->compiler), "sm_100");
  EXPECT_THAT(error_of<RunError>([&] { architecture_for(350, tools_->compiler); }), testing::HasSubstr("sm_350"));
}

}  // namespace
}  // namespace draftsmith
