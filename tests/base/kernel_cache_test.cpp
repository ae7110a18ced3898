#include <gtest/gtest.h>

#include "base/files.h"
#include "base/kernel_loader.h"
#include "tests/support/captured_log.h"
#include "tests/support/scoped_variable.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;

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

TEST_F(KernelCacheFiles, OfAnotherKeyAreRefused) {
  const std::string other = kernel_key(kSource, "sm_90", "12.8");
  cache_.store(other, kCubin);
  expect_refused(read_file(cache_.file_of(other)));
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
  const ScopedVariable home("HOME", "/home/one");
  const ScopedVariable cache("XDG_CACHE_HOME", std::nullopt);
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

}  // namespace
}  // namespace draftsmith
