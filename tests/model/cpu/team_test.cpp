// Teams do every piece of every phase once, phase after phase, whatever else the processor does; which instructions the
// kernels use.
#include "model/cpu/team.h"

#include <atomic>
#include <new>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include "model/cpu/instructions.h"
#include "tests/support/errors.h"

namespace draftsmith::model {
namespace {

// Every phase adds one to all its numbers, and checks that those of the phase before have been added.
class Counting final : public TeamProgram {
 public:
  explicit Counting(std::vector<int64_t> items) : items_(std::move(items)) {
    for (const int64_t count : items_) counts_.emplace_back(static_cast<size_t>(count));
  }

  int64_t phases() const override { return std::ssize(items_); }
  int64_t items(int64_t phase) const override { return items_[static_cast<size_t>(phase)]; }
  void run(int64_t phase, int64_t begin, int64_t end) const override {
    for (int64_t i = begin; i < end; ++i) ++counts_[static_cast<size_t>(phase)][static_cast<size_t>(i)];
    if (phase == 0) return;
    for (const std::atomic<int>& before : counts_[static_cast<size_t>(phase - 1)]) {
      if (before != runs_) ++early_;
    }
  }

  void begin() { ++runs_; }
  int early() const { return early_; }
  // Returns whether every item was done once in every run.
  bool complete() const {
    for (const auto& phase : counts_) {
      for (const std::atomic<int>& count : phase) {
        if (count != runs_) return false;
      }
    }
    return true;
  }

 private:
  std::vector<int64_t> items_;
  int runs_ = 0;
  mutable std::vector<std::vector<std::atomic<int>>> counts_;
  mutable std::atomic<int> early_{0};
};

TEST(Team, DoesEveryItemOnceAndPhasesInOrder) {
  for (const int64_t threads : {1, 2, 3, 5}) {
    Team team(threads);
    Counting program({1, 64, 0, 3, 17, 502, 2, 8, 1, 31});
    for (int run = 0; run < 300; ++run) {
      program.begin();
      team.run(program);
    }
    EXPECT_TRUE(program.complete()) << threads;
    EXPECT_EQ(program.early(), 0) << threads;
  }
}

TEST(Team, ThrowsWhatAPieceThrowsAndGoesOn) {
  struct Failing final : TeamProgram {
    int64_t phases() const override { return 3; }
    int64_t items(int64_t /*phase*/) const override { return 64; }
    void run(int64_t phase, int64_t /*begin*/, int64_t /*end*/) const override {
      if (phase == 1) throw std::bad_alloc();
    }
  };
  for (const int64_t threads : {1, 2, 3, 5}) {
    Team team(threads);
    for (int time = 0; time < 20; ++time) {
      EXPECT_THROW(team.run(Failing()), std::bad_alloc);
      Counting program({1, 64, 3, 502});
      program.begin();
      team.run(program);
      EXPECT_TRUE(program.complete() && program.early() == 0) << threads;
    }
  }
}

TEST(Team, NeedsNoThreadBesideBusyOnes) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  for (int i = 0; i < 3; ++i) {
    busy.emplace_back([&] {
      while (!stop) {
      }
    });
  }
  Team team(2);
  Counting program(std::vector<int64_t>(40, 16));
  for (int run = 0; run < 50; ++run) {
    program.begin();
    team.run(program);
  }
  stop = true;
  for (std::thread& thread : busy) thread.join();
  EXPECT_TRUE(program.complete());
  EXPECT_EQ(program.early(), 0);
}

TEST(Team, IsOneOfEachThread) {
  Team* others = nullptr;
  std::thread([&] { others = &Team::current(); }).join();
  EXPECT_NE(others, &Team::current());
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  EXPECT_EQ(Team::current().threads(), 3);
  at::parallel_for(0, 3, 1, [](int64_t, int64_t) { EXPECT_EQ(Team::current().threads(), 1); });
  at::set_num_threads(before);
  EXPECT_EQ(Team::current().threads(), before);
}

TEST(CpuInstructions, AreTheLargestUnlessTheUserLowersThem) {
  EXPECT_EQ(choose_instructions("", Instructions::kAvx2), Instructions::kAvx2);
  EXPECT_EQ(choose_instructions("avx2", Instructions::kAvx512), Instructions::kAvx2);
  using enum Instructions;
  for (const Instructions set : {kPortable, kAvx2, kAvx512, kAmx}) {
    EXPECT_EQ(choose_instructions(to_string(set), Instructions::kAmx), set);
    EXPECT_EQ(choose_instructions("portable", set), Instructions::kPortable);
  }
}

TEST(CpuInstructions, OfOtherNamesAndThoseThatTheProcessorLacksAreErrors) {
  for (const char* wrong : {"sse", "AVX2", "avx512 ", "on"}) {
    EXPECT_THAT(error_of([&] { choose_instructions(wrong, Instructions::kAvx512); }),
                AllOf(HasSubstr("DRAFTSMITH_CPU"), HasSubstr("amx, avx512, avx2 or portable"), HasSubstr(wrong)));
  }
  EXPECT_THAT(error_of([] { choose_instructions("avx512", Instructions::kAvx2); }), HasSubstr("at most avx2"));
}

}  // namespace
}  // namespace draftsmith::model
