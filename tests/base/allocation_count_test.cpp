#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "base/environment.h"

namespace draftsmith {
namespace {

// Takes and frees memory in a way that no compiler leaves out.
void take(size_t bytes) {
  void* volatile block = ::operator new(bytes);
  ::operator delete(block);
}

class AllocationCounts : public testing::Test {
 protected:
  void SetUp() override {
    if (!count_allocations([] {})) GTEST_SKIP() << "this process runs without TCMalloc";
  }
};

TEST_F(AllocationCounts, SeesEveryWayToTakeMemory) {
  const auto count = count_allocations([] {
    take(100);
    void* volatile block = std::malloc(200);
    std::free(block);
    block = std::calloc(3, 100);
    std::free(block);
    void* aligned = nullptr;
    ASSERT_EQ(posix_memalign(&aligned, 64, 400), 0);  // tensors are taken so
    std::free(aligned);
  });
  EXPECT_EQ(count->calls, 4);
  EXPECT_GE(count->bytes, 1000);
  EXPECT_LT(count->bytes, 1100);  // an aligned block counts with its padding
}

TEST_F(AllocationCounts, IsZeroForWorkThatTakesNone) {
  double sum = 0;
  const auto count = count_allocations([&] {
    for (int i = 0; i < 1000; ++i) sum += i;
  });
  EXPECT_EQ(count->calls, 0);
  EXPECT_EQ(sum, 499500);
}

TEST_F(AllocationCounts, BeginsAnewAndEndsAfterTheWork) {
  take(10);
  EXPECT_EQ(count_allocations([] { take(20); })->calls, 1);
  take(30);
  EXPECT_EQ(count_allocations([] { take(40); })->bytes, 40);
  EXPECT_THROW(count_allocations([] { throw std::runtime_error("work failed"); }), std::runtime_error);
  EXPECT_EQ(count_allocations([] {})->calls, 0);
}

TEST_F(AllocationCounts, SeesOtherThreads) {
  const auto count = count_allocations([] { std::thread([] { take(12345); }).join(); });
  EXPECT_GE(count->calls, 1);
  EXPECT_GE(count->bytes, 12345);
}

TEST_F(AllocationCounts, RefusesACountInsideAnother) {
  EXPECT_THROW(count_allocations([] { count_allocations([] {}); }), std::logic_error);
  EXPECT_EQ(count_allocations([] { take(1); })->calls, 1);
}

}  // namespace
}  // namespace draftsmith
