#include "distributed/world.h"

#include <atomic>
#include <mutex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/signals.h"
#include "tests/support/worlds.h"

namespace draftsmith {
namespace {

using testing_support::run_in_world;

class WorldOf : public testing::TestWithParam<int> {};

TEST_P(WorldOf, SumsTensorsOfAllTypesAndSizes) {
  run_in_world(GetParam(), [](World& world) {
    const double mine = static_cast<double>(world.rank()) + 1;
    const double size = static_cast<double>(world.size());
    const double all = size * (size + 1) / 2;
    std::vector<at::Tensor> tensors{at::full({3}, mine, at::kFloat),        at::full({2, 2}, mine, at::kFloat),
                                    at::full({5}, mine, at::kDouble),       at::full({9'000'000}, mine, at::kFloat),
                                    at::full({4, 3}, mine, at::kFloat).t(), at::full({}, mine, at::kLong)};
    world.sum(tensors);
    for (const at::Tensor& tensor : tensors) {
      EXPECT_EQ(tensor.min().item<double>(), all) << tensor.sizes();
      EXPECT_EQ(tensor.max().item<double>(), all) << tensor.sizes();
    }
    world.sum({});
  });
}

TEST_P(WorldOf, GivesAllTheLeadersTensors) {
  run_in_world(GetParam(), [](World& world) {
    std::vector<at::Tensor> tensors{at::full({3}, world.rank() + 7, at::kFloat),
                                    at::full({2}, world.rank(), at::kLong)};
    world.broadcast(tensors);
    EXPECT_EQ(tensors[0].max().item<double>(), 7);
    EXPECT_EQ(tensors[1].max().item<int64_t>(), 0);
  });
}

TEST_P(WorldOf, SumsInAnotherTypeAndGivesAllTheSameBits) {
  std::mutex mutex;
  std::vector<at::Tensor> sums, wholes;
  run_in_world(GetParam(), [&](World& world) {
    const at::Tensor own = at::arange(1, 10'001, at::kFloat) * (static_cast<double>(world.rank()) + 0.123);
    const at::Tensor sum = own.clone(), whole = own.clone(), counts = at::full({2}, 1000, at::kLong);
    world.sum({sum, counts}, at::kBFloat16);
    world.sum({whole});
    EXPECT_EQ(counts[1].item<int64_t>(), 1000 * world.size()) << "whole numbers keep their type";
    EXPECT_EQ(sum.scalar_type(), at::kFloat);
    const std::lock_guard lock(mutex);
    sums.push_back(sum);
    wholes.push_back(whole);
  });
  const double roundings = GetParam() == 1 ? 0 : GetParam();  // each number, and each sum of two
  const at::Tensor error = ((sums.front() - wholes.front()) / wholes.front()).abs();
  EXPECT_LE(error.max().item<double>(), roundings * 0x1p-8);
  EXPECT_EQ(error.max().item<double>() > 0x1p-12, GetParam() > 1);
  for (const at::Tensor& sum : sums) EXPECT_TRUE(sum.equal(sums.front()));
}

TEST_P(WorldOf, SumsThatWereBegunEndInAnyOrderAsOthersDo) {
  run_in_world(GetParam(), [](World& world) {
    const auto values = [&](double factor) {
      return std::vector<at::Tensor>{at::full({5}, factor * (static_cast<double>(world.rank()) + 1)),
                                     at::full({9'000'000}, factor * (static_cast<double>(world.rank()) + 1))};
    };
    const std::vector<at::Tensor> first = values(1), second = values(10), third = values(100);
    const auto end_first = world.begin_sum(first), end_second = world.begin_sum(second);
    world.sum(third);
    end_second();
    end_first();
    const double all = static_cast<double>(world.size() * (world.size() + 1)) / 2;
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(first[i].max().item<double>(), all);
      EXPECT_EQ(second[i].min().item<double>(), 10 * all);
      EXPECT_EQ(third[i].max().item<double>(), 100 * all);
    }
  });
}

TEST_P(WorldOf, GivesAllTheTensorsOfEachOwner) {
  run_in_world(GetParam(), [](World& world) {
    std::vector<std::vector<at::Tensor>> by_owner(static_cast<size_t>(world.size()));
    for (size_t owner = 0; owner < by_owner.size(); ++owner) {
      const double own = 10.0 * static_cast<double>(owner);
      const double value = own + static_cast<double>(owner) + (world.rank() == static_cast<int64_t>(owner) ? 0 : 99);
      for (size_t i = 0; i < 2 + owner; ++i) by_owner[owner].push_back(at::full({3, 2}, value, at::kFloat).t());
      by_owner[owner].push_back(at::full({9'000'000}, value, at::kFloat));
      if (owner == 1) by_owner[owner].clear();  // one may have nothing
    }
    world.broadcast_each(by_owner);
    for (size_t owner = 0; owner < by_owner.size(); ++owner) {
      const double expected = 11.0 * static_cast<double>(owner);
      for (const at::Tensor& tensor : by_owner[owner]) {
        EXPECT_EQ(tensor.min().item<double>(), expected);
        EXPECT_EQ(tensor.max().item<double>(), expected);
      }
    }
    world.broadcast_each({});
  });
}

TEST_P(WorldOf, MovesTensorsFromOneProcessToAnother) {
  run_in_world(GetParam(), [](World& world) {
    const int64_t last = world.size() - 1;
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>{last, 0}, {0, last}, {last, last}}) {
      const double own = static_cast<double>(world.rank());
      const std::vector<at::Tensor> tensors{at::full({2, 3}, own).t(), at::full({9'000'000}, own), at::full({}, own)};
      world.transfer(tensors, from, to);
      const double expected = static_cast<double>(world.rank() == to ? from : world.rank());
      for (const at::Tensor& tensor : tensors) EXPECT_EQ(tensor.max().item<double>(), expected);
    }
  });
}

TEST_P(WorldOf, GathersTextsByRank) {
  run_in_world(GetParam(), [](World& world) {
    for (int round = 0; round < 20; ++round) {
      const auto texts = world.gather("a test", std::to_string(10 * round + world.rank()));
      ASSERT_EQ(static_cast<int64_t>(texts.size()), world.size());
      for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], std::to_string(10 * round + static_cast<int>(i)));
    }
    EXPECT_EQ(world.from_leader("a test", "from " + std::to_string(world.rank())), "from 0");
    EXPECT_EQ(world.gather("long texts", std::string(3'000'000, 'x')).back().size(), 3'000'000U);
  });
}

TEST_P(WorldOf, HandsOutEachTicketOnce) {
  std::mutex mutex;
  std::multiset<int64_t> taken;
  run_in_world(GetParam(), [&](World& world) {
    for (int i = 0; i < 5; ++i) {
      const int64_t number = world.ticket("shards");
      const std::lock_guard lock(mutex);
      taken.insert(number);
    }
  });
  std::multiset<int64_t> expected;
  for (int i = 0; i < 5 * GetParam(); ++i) expected.insert(i);
  EXPECT_EQ(taken, expected);
}

TEST_P(WorldOf, AgreesOnWhatOneSays) {
  run_in_world(GetParam(), [](World& world) {
    EXPECT_FALSE(world.any("a test", false));
    EXPECT_TRUE(world.any("a test", world.rank() == world.size() - 1));
  });
}

TEST_P(WorldOf, DealsEachPieceToOneProcess) {
  std::atomic<int> done{0};
  run_in_world(GetParam(), [&](World& world) {
    for (int64_t i = 0; i < 10; ++i) done += world.has(i) ? 1 : 0;
  });
  EXPECT_EQ(done, 10);
}

INSTANTIATE_TEST_SUITE_P(Processes, WorldOf, testing::Values(1, 2, 3, 4));

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(World, LeavingEarlyDoesNotEndTheConnectingOfOthers) {
  for (int round = 0; round < 6; ++round) {
    run_in_world(8, [](World&) {});
  }
}

TEST(World, NamesTheProcessThatDiffers) {
  const std::string message = message_of(
      [] { run_in_world(3, [](World& world) { world.require_same("the recipe", world.rank() == 2 ? "b7" : "a1"); }); });
  EXPECT_THAT(message, testing::HasSubstr("the processes of one job differ in the recipe"));
  EXPECT_THAT(message, testing::HasSubstr("process 2: b7"));
}

TEST(World, TellsAllWhyOneFailed) {
  const SignalWatch signals;
  std::atomic<int> told{0};
  message_of([&] {
    run_in_world(3, [&](World& world) {
      if (world.rank() == 1) {
        world.fail("the disk is full");
        throw RunError({.what = "the disk is full"});
      }
      // The stop flag belongs to the test's process, so that another thread's may come first.
      while (world.reason().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_NE(stop_requested(), 0);
      const std::string message = message_of([&] { world.wait_for_all("the leader's work"); });
      EXPECT_THAT(message, testing::HasSubstr("process 1 of 3 failed: the disk is full"));
      EXPECT_THAT(message, testing::HasSubstr("during the leader's work"));
      ++told;
    });
  });
  EXPECT_EQ(told, 2);
}

TEST(World, NamesAProcessThatNeverStarted) {
  const std::string message = message_of([] {
    const auto launch = testing_support::local_launch(0, 2, testing_support::free_port());
    join_world(launch, {.timeout = std::chrono::seconds(1)});
  });
  EXPECT_THAT(message, testing::HasSubstr("no sign of process 1"));
}

TEST(World, NamesAPortThatIsTaken) {
  const int64_t port = testing_support::free_port();
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  ASSERT_EQ(::bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(descriptor, 1), 0);
  const std::string message =
      message_of([&] { join_world(testing_support::local_launch(0, 2, port), {.timeout = std::chrono::seconds(2)}); });
  ::close(descriptor);
  EXPECT_THAT(message, testing::HasSubstr("the port of the job is taken"));
  EXPECT_THAT(message, testing::HasSubstr("MASTER_PORT"));
}

TEST(World, NamesAHostWithoutAStore) {
  const std::string message = message_of([] {
    join_world(testing_support::local_launch(1, 2, testing_support::free_port()), {.timeout = std::chrono::seconds(2)});
  });
  EXPECT_THAT(message, testing::HasSubstr("process 1 of 2 cannot reach the job's store"));
}

}  // namespace
}  // namespace draftsmith
