// Memory that packed models on CPUs take for long sources and prompts: no tensor of queries times keys.
#include <atomic>
#include <functional>
#include <thread>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "model/transformer/cpu_pass.h"
#include "tests/support/batches.h"
#include "tests/support/models.h"

namespace draftsmith::model {
namespace {

constexpr int64_t kMemoryHeads = 4;
const ModelSizes kMemorySizes{.width = 32, .heads = kMemoryHeads};

// A hook takes no argument of ours, so what it counts is the process's own.
std::atomic<int64_t> bytes_asked{0};

void count_bytes(const void* /*block*/, size_t bytes) {
  bytes_asked.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

// Calls a function of TCMalloc, which may be linked or preloaded, with the hook. Returns whether that worked.
bool call_tcmalloc(const char* name) {
  using ChangeHooks = int (*)(void (*)(const void*, size_t));
  const auto change = reinterpret_cast<ChangeHooks>(dlsym(RTLD_DEFAULT, name));
  return change != nullptr && change(count_bytes) != 0;
}

// Returns the bytes that work on a new thread takes, whose kept memory is empty: freed again or not.
int64_t bytes_of(const std::function<void()>& work) {
  bytes_asked = 0;
  EXPECT_TRUE(call_tcmalloc("MallocHook_AddNewHook"));
  std::thread(work).join();
  EXPECT_TRUE(call_tcmalloc("MallocHook_RemoveNewHook"));
  return bytes_asked;
}

class CpuMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (dlsym(RTLD_DEFAULT, "MallocHook_AddNewHook") == nullptr) GTEST_SKIP() << "this process runs without TCMalloc";
  }
};

TEST_F(CpuMemory, OfEncodersIsLinearInTheSource) {
  const auto model = tiny_model(t5_config(kMemorySizes), at::kFloat);
  model->pack();
  const auto bytes = [&](const std::vector<int64_t>& lengths) {
    const TokenBatch source = random_batch(lengths, 40, 1);
    return bytes_of([&] { model->begin(model->encode(source), 4); });
  };
  const int64_t once = bytes({1024}), twice = bytes({2048}), fourfold = bytes({4096});
  EXPECT_LT(static_cast<double>(twice), 2.1 * static_cast<double>(once));
  EXPECT_LT(static_cast<double>(fourfold), 2.1 * static_cast<double>(twice));
  EXPECT_LT(fourfold, 4096 * 4096 * 4);  // bytes of one head's scores
  // Rows are encoded in groups: more of them add their input, output and caches.
  EXPECT_LT(static_cast<double>(bytes({1024, 1024, 1000, 1})), 4.0 * static_cast<double>(once));
}

TEST_F(CpuMemory, OfPromptsIsLinearInTheKeys) {
  for (const bool packed : {true, false}) {
    const auto model = tiny_model(t5_config(kMemorySizes), at::kFloat);
    if (packed) model->pack();
    const int64_t keys = 4096, tokens = 512;  // copies of keys and values take memory too
    const auto state = model->begin({at::zeros({1, keys, kMemorySizes.width}), {keys}}, keys + tokens);
    const std::vector<int64_t> prompt(static_cast<size_t>(tokens), 3);
    const auto step = [&] { model->step(step_input({prompt}, Logits::kNone), *state); };
    model->step(step_input({std::vector<int64_t>(static_cast<size_t>(keys), 3)}, Logits::kNone), *state);
    // The step attends to 4096 tokens before it and to 4096 of the source.
    EXPECT_LT(bytes_of(step), kMemoryHeads * tokens * keys * 4 / 4) << packed;
  }
}

struct Pass : CpuPass {
  using CpuPass::Buffer;
};

TEST(CpuBuffers, KeepTheirMemoryUnlessItIsMuchMoreThanIsNeeded) {
  Pass::Buffer buffer;
  buffer.fit(1000);
  const float* small = buffer.data();
  buffer.fit(10);
  EXPECT_EQ(buffer.data(), small);
  EXPECT_EQ(buffer.size(), 1000);
  const int64_t much = 8 << 20;
  buffer.fit(much);
  buffer.fit(much / 8);
  EXPECT_EQ(buffer.size(), much);
  buffer.fit(much / 8 - 1);
  EXPECT_EQ(buffer.size(), much / 8 - 1);
  EXPECT_THROW(buffer.fit(int64_t{1} << 60), std::bad_alloc);
  buffer.fit(10);
  EXPECT_NE(buffer.data(), nullptr);
}

}  // namespace
}  // namespace draftsmith::model
