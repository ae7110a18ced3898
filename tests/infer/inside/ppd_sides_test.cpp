// Two pieces of work beside each other: threads and their limits, errors of either, order in memory.
#include "infer/inside/ppd_sides.h"

#include <atomic>
#include <stdexcept>
#include <thread>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "base/device_choice.h"
#include "tests/infer/inside/ppd_fixtures.h"
#include "tests/support/early_exit_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

TEST(PpdSides, ThreadsRunBothAtTheSameTimeInTurnsOneAfterTheOther) {
  PpdSides sides(PpdExecution::kThreads, at::kCPU);
  std::atomic<int> met = 0;
  const auto meet = [&] {
    ++met;
    while (met < 2) std::this_thread::yield();
  };
  std::thread::id worker;
  sides.run(
      [&] {
        meet();
        worker = std::this_thread::get_id();
      },
      meet);
  EXPECT_NE(worker, std::this_thread::get_id());
  std::vector<int> order;
  PpdSides batched(PpdExecution::kBatched, at::kCPU);
  batched.run([&] { order.push_back(1); }, [&] { order.push_back(2); });
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

// Plain memory, no atomics: each side sees what was written before, and the caller what both wrote.
TEST(PpdSides, OneThreadSeesWhatWasWrittenBeforeAndLeavesWhatItWrites) {
  PpdSides sides(PpdExecution::kThreads, at::kCPU);
  std::thread::id worker;
  int64_t shared = 0;
  int64_t left = 0;
  int64_t right = 0;
  for (int64_t i = 1; i <= 5000; ++i) {
    shared = i;
    sides.run(
        [&] {
          left += shared;
          if (i == 1) worker = std::this_thread::get_id();
          ASSERT_EQ(worker, std::this_thread::get_id());
        },
        [&] { right += shared; });
    ASSERT_EQ(left, right);
  }
  EXPECT_EQ(left, 5000 * 5001 / 2);
}

TEST(PpdSides, ShareTheCoresUntilTheyAreDestroyed) {
  const int before = at::get_num_threads();
  at::set_num_threads(5);
  {
    PpdSides sides(PpdExecution::kThreads, at::kCPU);
    int theirs = 0;
    bool gradients = true;
    sides.run(
        [&] {
          theirs = at::get_num_threads();
          gradients = at::GradMode::is_enabled();
        },
        [] {});
    EXPECT_EQ(theirs, 2);
    EXPECT_EQ(at::get_num_threads(), 3);
    EXPECT_FALSE(gradients);
  }
  EXPECT_EQ(at::get_num_threads(), 5);
  std::thread([] { EXPECT_EQ(at::get_num_threads(), 5); }).join();
  at::set_num_threads(1);
  {
    PpdSides alone(PpdExecution::kThreads, at::kCPU);
    EXPECT_EQ(at::get_num_threads(), 1);
  }
  at::set_num_threads(before);
}

TEST(PpdSides, ErrorsOfEitherSideReachTheCallerOnceBothAreDone) {
  PpdSides sides(PpdExecution::kThreads, at::kCPU);
  bool done = false;
  EXPECT_THROW(sides.run([] { throw std::domain_error("branches"); }, [&] { done = true; }), std::domain_error);
  EXPECT_TRUE(done);
  done = false;
  const auto late = [&] {
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    done = true;
  };
  EXPECT_THROW(sides.run(late, [] { throw std::range_error("main"); }), std::range_error);
  EXPECT_TRUE(done);
  sides.run([&] { done = false; }, [] {});
  EXPECT_FALSE(done);
}

TEST(PpdSides, ExecutionsOfOtherDevicesAreRefused) {
  EXPECT_THROW(PpdSides(PpdExecution::kStreams, at::kCPU), std::logic_error);
  EXPECT_THROW(PpdSides(PpdExecution::kThreads, at::kCUDA), std::logic_error);
}

TEST(PpdSidesGpu, StreamsEqualGreedy) {
  if (!at::hasCUDA() || choose_device("auto").is_cpu()) GTEST_SKIP() << "this machine has no GPU";
  for (const char* family : {"t5", "llama", "gpt2"}) {
    const auto model = exit_model({.family = family});
    model->to(at::kCUDA, at::kDouble);
    const auto sources = exit_sources(*model);
    for (const int64_t batch : {1, 4}) {
      PpdDecoding decoding;
      decoding.batch = batch;
      decoding.ppd = {2, 3, PpdExecution::kStreams};
      const auto expected = run_plainly(*model, sources, decoding).ids;
      for (int repetition = 0; repetition < 10; ++repetition) {
        EXPECT_EQ(run_ppd(*model, sources, decoding).ids, expected) << family << " batch " << batch;
      }
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
