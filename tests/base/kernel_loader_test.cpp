// Compilation, keeping and loading of kernels, with a CUDA runtime that only records its calls.
#include "base/kernel_loader.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/support/captured_log.h"
#include "tests/support/errors.h"
#include "tests/support/kernel_gate.h"
#include "tests/support/scoped_variable.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;

// Requests to the recording runtime, and its answers.
struct Recorded {
  int libraries = 0, kernels = 0;
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

const KernelSource kSource{.main = {"a.cu", "text"}, .headers = {{"b.cuh", "header"}}, .options = {"--fmad=false"}};
const std::string kCubin("\177ELF\0bytes of a cubin", 22);

class KernelCacheFiles : public testing::Test {
 protected:
  // Writes other bytes where the cubin is kept, and expects a warning in place of the cubin.
  void expect_refused(const std::string& content) {
    write_file_atomic(cache_.file_of(key_), content);
    const CapturedLog log;
    EXPECT_EQ(cache_.find(key_), std::nullopt);
    EXPECT_EQ(log.warnings(), 1u) << log.text();
    EXPECT_THAT(log.text(), testing::HasSubstr(cache_.file_of(key_).string()));
  }

  TemporaryDirectory folder_;
  KernelCache cache_{folder_ / "below" / "kernels"};
  std::string key_ = kernel_key(kSource, "sm_90", "13.0");
};

TEST_F(KernelCacheFiles, KeepWhatIsStored) {
  EXPECT_EQ(cache_.find(key_), std::nullopt);
  cache_.store(key_, kCubin);
  EXPECT_EQ(cache_.find(key_), kCubin);
  EXPECT_EQ(KernelCache(folder_ / "below" / "kernels").find(key_), kCubin);
  EXPECT_EQ(cache_.find(kernel_key(kSource, "sm_80", "13.0")), std::nullopt);
}

TEST_F(KernelCacheFiles, ThatAreDamagedAreNoticedAndReplaced) {
  cache_.store(key_, kCubin);
  const std::string whole = read_file(cache_.file_of(key_));
  expect_refused("");
  expect_refused(whole.substr(0, whole.size() - 1));
  expect_refused(whole.substr(0, 20));
  expect_refused(whole + "x");
  for (const size_t place : {size_t{0}, size_t{25}, whole.size() - kCubin.size() - 3, whole.size() - 2}) {
    std::string changed = whole;
    changed[place] = static_cast<char>(changed[place] ^ 1);
    expect_refused(changed);
  }
  cache_.store(key_, kCubin);
  EXPECT_EQ(cache_.find(key_), kCubin);
}

TEST_F(KernelCacheFiles, ThatCannotBeWrittenGiveOneWarning) {
  write_file_atomic(folder_ / "file", "");
  KernelCache cache(folder_ / "file" / "kernels");
  const CapturedLog log;
  cache.store(key_, kCubin);
  cache.store(key_, kCubin);
  EXPECT_EQ(log.warnings(), 1u) << log.text();
  EXPECT_THAT(log.text(), testing::HasSubstr("DRAFTSMITH_KERNEL_CACHE"));
  EXPECT_EQ(cache.find(key_), std::nullopt);
}

TEST(KernelCacheFolder, IsChosenByTheEnvironment) {
  const ScopedVariable home("HOME", "/home/one"), cache("XDG_CACHE_HOME", std::nullopt);
  const ScopedVariable own("DRAFTSMITH_KERNEL_CACHE", std::nullopt);
  EXPECT_EQ(kernel_cache_folder(), fs::path("/home/one/.cache/draftsmith/kernels"));
  {
    const ScopedVariable set("XDG_CACHE_HOME", "/caches");
    EXPECT_EQ(kernel_cache_folder(), fs::path("/caches/draftsmith/kernels"));
    const ScopedVariable named("DRAFTSMITH_KERNEL_CACHE", "/kernels");
    EXPECT_EQ(kernel_cache_folder(), fs::path("/kernels"));
  }
  const ScopedVariable none("HOME", std::nullopt);
  EXPECT_TRUE(kernel_cache_folder().empty());
  KernelCache nowhere{kernel_cache_folder()};
  nowhere.store("key", kCubin);
  EXPECT_EQ(nowhere.find("key"), std::nullopt);
}

TEST(KernelKey, DependsOnEveryPart) {
  std::set<std::string> keys{kernel_key(kSource, "sm_90", "13.0"), kernel_key(kSource, "sm_80", "13.0"),
                             kernel_key(kSource, "sm_90", "13.1")};
  KernelSource changed = kSource;
  changed.main.text = "text ";
  keys.insert(kernel_key(changed, "sm_90", "13.0"));
  changed = kSource;
  changed.headers[0].text = "headers";
  keys.insert(kernel_key(changed, "sm_90", "13.0"));
  changed = kSource;
  changed.options.clear();
  keys.insert(kernel_key(changed, "sm_90", "13.0"));
  EXPECT_EQ(keys.size(), 6u);
  EXPECT_EQ(kernel_key(kSource, "sm_90", "13.0").size(), 64u);
}

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
  EXPECT_THAT(message, testing::AllOf(testing::HasSubstr("test.cu"), testing::HasSubstr("sm_90")));
  EXPECT_THAT(message, testing::HasSubstr("identifier \"missing\" is undefined"));
  EXPECT_THAT(error_of<RunError>([&] { compiler.compile(source_of(""), "sm_1"); }), testing::HasSubstr("sm_1"));
}

TEST(Nvrtc, AMissingLibraryIsAnErrorThatNamesTheVariable) {
  const std::string message = error_of<RunError>([] { Nvrtc("/nowhere/libnvrtc.so"); });
  EXPECT_THAT(message,
              testing::AllOf(testing::HasSubstr("/nowhere/libnvrtc.so"), testing::HasSubstr("DRAFTSMITH_NVRTC")));
  const ScopedVariable variable("DRAFTSMITH_NVRTC", "/elsewhere/libnvrtc.so");
  EXPECT_THAT(error_of<RunError>([] { Nvrtc(); }), testing::HasSubstr("/elsewhere/libnvrtc.so"));
}

TEST(KernelGate, DropoutCompilesWithoutSpills) {
  if (const auto reason = nvrtc_missing()) GTEST_SKIP() << *reason;
  expect_good_kernels(kernel_source(base_kernel_texts(), "base/kernels/dropout.cu", {"--fmad=false"}), 3, 40);
}

}  // namespace
}  // namespace draftsmith
