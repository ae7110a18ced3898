// The machine, use of its processors, and counts of allocations.
#include "base/environment.h"

#include <cstdlib>
#include <new>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST_F(AllocationCounts, BeginsAnewAndEndsAfterTheWork) {
  take(10);
  EXPECT_EQ(count_allocations([] { take(20); })->calls, 1);
  take(30);
  EXPECT_EQ(count_allocations([] { take(40); })->bytes, 40);
  EXPECT_THROW(count_allocations([] { throw std::runtime_error("work failed"); }), std::runtime_error);
  EXPECT_EQ(count_allocations([] {})->calls, 0);
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
