// Regions that fewer threads run, products in pieces, and the count of threads beside busy processes.
#include "base/parallel_regions.h"

#include <atomic>
#include <set>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/considerate_threads.h"
#include "base/divided_products.h"
#include "base/processor_use.h"

namespace draftsmith {
namespace {

class ParallelRegions : public testing::Test {
 protected:
  void SetUp() override {
    if (!handles_regions()) GTEST_SKIP() << "LibTorch uses another OpenMP here";
    at::set_num_threads(3);
  }

  void TearDown() override {
    limit_region_workers(0);
    at::set_num_threads(threads_);
  }

  int threads_ = at::get_num_threads();
};

at::Tensor numbers(at::IntArrayRef shape, int64_t seed) {
  const int64_t count = c10::multiply_integers(shape);
  return at::arange(seed, seed + count, at::kDouble).mul_(0.7371).sin_().to(at::kFloat).reshape(shape);
}

// Results of operators that cut their work by the number of threads.
std::vector<at::Tensor> results_of_operators() {
  const at::Tensor x = numbers({300, 257}, 1), y = numbers({257, 211}, 2);
  const at::Tensor many = numbers({1 << 18}, 3);
  const at::Tensor index = at::arange(300).remainder(17);
  return {x.mm(y),
          numbers({12, 64, 32}, 4).bmm(numbers({12, 32, 64}, 5)),
          many.sum(),
          many.norm(),
          at::softmax(x, -1),
          x.sum(0),
          at::zeros({17, 257}).index_add_(0, index, x)};
}

TEST_F(ParallelRegions, GiveTheSameBitsWhateverTheNumberOfWorkers) {
  const DividedProducts divided;
  const std::vector<at::Tensor> expected = results_of_operators();
  for (const int64_t workers : {1, 2, 1, 3, 0}) {
    limit_region_workers(workers);
    const std::vector<at::Tensor> found = results_of_operators();
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(found[i].equal(expected[i])) << "operator " << i << ", " << workers << " workers";
    }
  }
}

TEST_F(ParallelRegions, EveryPieceHasItsOwnLogicalThread) {
  for (const int64_t workers : {0, 0, 2, 1}) {
    limit_region_workers(workers);
    std::array<std::atomic<int>, 3> calls{};
    std::array<std::atomic<int>, 3> numbers{};
    at::parallel_for(0, 3, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        ++calls[static_cast<size_t>(i)];
        numbers[static_cast<size_t>(i)] = at::get_thread_num();
        EXPECT_TRUE(at::in_parallel_region());
      }
    });
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(calls[static_cast<size_t>(i)], 1) << workers << " workers";
      EXPECT_EQ(numbers[static_cast<size_t>(i)], i) << workers << " workers";
    }
    EXPECT_FALSE(at::in_parallel_region());
  }
}

TEST_F(ParallelRegions, OneWorkerIsTheCaller) {
  const auto run = [](std::vector<pthread_t>& seen) {
    at::parallel_for(0, 3, 1,
                     [&](int64_t begin, int64_t /*end*/) { seen[static_cast<size_t>(begin)] = pthread_self(); });
  };
  std::vector<pthread_t> seen(3);
  run(seen);  // code that was never run is run by all
  limit_region_workers(1);
  run(seen);
  EXPECT_THAT(seen, testing::Each(pthread_self()));
}

TEST_F(ParallelRegions, AnErrorInAPieceReachesTheCaller) {
  for (const int64_t workers : {0, 1}) {
    limit_region_workers(workers);
    const auto run = [] {
      at::parallel_for(0, 3, 1, [](int64_t begin, int64_t /*end*/) {
        if (begin == 2) throw std::runtime_error("in a piece");
      });
    };
    EXPECT_THROW(run(), std::runtime_error);
    EXPECT_FALSE(at::in_parallel_region());
  }
}

TEST_F(ParallelRegions, AreUnlimitedAfterConsiderateThreads) {
  {
    const ConsiderateThreads first;
    const ConsiderateThreads second;
    limit_region_workers(2);
  }
  EXPECT_EQ(region_workers(), 0);
}

// The largest difference to a product in fp64, relative to the largest number.
double error_of_product(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor expected = a.to(at::kDouble).matmul(b.to(at::kDouble));
  return ((a.matmul(b) - expected).abs().max() / expected.abs().max()).item<double>();
}

TEST(DividedProducts, AreThoseOfWholeMatrices) {
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 3, 4, 6}) {
    at::set_num_threads(threads);
    const DividedProducts divided;
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
             {64, 64, 64}, {1, 4000, 64}, {4000, 1, 64}, {97, 203, 51}, {7, 5, 9001}, {500, 49, 33}}) {
      SCOPED_TRACE(testing::Message() << threads << " threads " << m << " " << n << " " << k);
      const at::Tensor a = numbers({m, k}, 1), b = numbers({k, n}, 2);
      EXPECT_LT(error_of_product(a, b), 1e-5);
      EXPECT_LT(error_of_product(a.t().contiguous().t(), b), 1e-5);
      EXPECT_LT(error_of_product(a, b.t().contiguous().t()), 1e-5);
      EXPECT_LT(error_of_product(a.t().contiguous().t(), b.t().contiguous().t()), 1e-5);
      EXPECT_LT(error_of_product(numbers({5, m, k}, 3), numbers({5, k, n}, 4)), 1e-5);
      const at::Tensor sum = numbers({m, n}, 5);
      const at::Tensor wide = sum.to(at::kDouble).addmm(a.to(at::kDouble), b.to(at::kDouble), 0.5, 2.0);
      EXPECT_TRUE(at::allclose(sum.addmm(a, b, 0.5, 2.0).to(at::kDouble), wide, 1e-4, 1e-3));
    }
  }
  at::set_num_threads(before);
}

TEST(ProcessorUse, CountsTheGivenProcessorsBusyTimes) {
  const std::string stat =
      "cpu  600 60 66 5000 500 6 6 6 0 0\ncpu0 100 10 11 1000 100 1 2 3 50 0\ncpu1 200 20 22 2000 200 2 2 2 0 0\n"
      "cpu11 300 30 33 2000 200 3 2 1 0 0\nintr 5 5\n";
  EXPECT_DOUBLE_EQ(busy_seconds(stat, {0}, 100), 1.27);
  EXPECT_DOUBLE_EQ(busy_seconds(stat, {1, 0}, 100), 3.75);
  EXPECT_DOUBLE_EQ(busy_seconds(stat, {}, 100), 0);
}

TEST(ProcessorUse, OwnWorkCountsInTheSystemsTimes) {
  const std::optional<ProcessorTimes> times = processor_times();
  if (!times) GTEST_SKIP() << "no /proc/stat";
  EXPECT_GT(times->wall, 0);
  EXPECT_GT(times->busy, 0);
  EXPECT_GT(times->own, 0);
}

TEST(ProcessorUse, ThreadsKeepTheProcessorsThatOthersLeave) {
  const auto threads = [](double others, int64_t processors, int64_t wanted) {
    const ProcessorTimes before{.wall = 10, .busy = 100, .own = 50};
    return threads_with_processor(before, {.wall = 12, .busy = 100 + 2 * (1.5 + others), .own = 53}, processors,
                                  wanted);
  };
  EXPECT_EQ(threads(0, 2, 2), 2);
  EXPECT_EQ(threads(0.3, 2, 2), 2);
  EXPECT_EQ(threads(0.5, 2, 2), 1);  // a busy process beside two threads has half a processor at least
  EXPECT_EQ(threads(1, 2, 2), 1);    // and a whole one beside one thread
  EXPECT_EQ(threads(2, 2, 2), 1);
  EXPECT_EQ(threads(-0.1, 2, 2), 2);
  EXPECT_EQ(threads(1, 16, 8), 8);
  EXPECT_EQ(threads(1, 16, 16), 15);
  EXPECT_EQ(threads(0, 2, 8), 2);
}

}  // namespace
}  // namespace draftsmith
