#include "distributed/process_group.h"

#include <csignal>
#include <thread>

#include <gmock/gmock.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/signals.h"
#include "tests/support/errors.h"
#include "tests/support/process_groups.h"

namespace draftsmith {
namespace {

using testing_support::run_in_group;

class GroupOf : public testing::TestWithParam<int> {};

TEST_P(GroupOf, SumsTensorsOfAllTypesAndSizes) {
  run_in_group(GetParam(), [](ProcessGroup& world) {
    const double mine = static_cast<double>(world.rank()) + 1, size = static_cast<double>(world.size());
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

TEST_P(GroupOf, GivesAllTheTensorsOfTheLeader) {
  run_in_group(GetParam(), [](ProcessGroup& world) {
    const double own = static_cast<double>(world.rank() + 7);
    const std::vector<at::Tensor> tensors{at::full({2, 3}, own).t(), at::full({9'000'000}, own), at::full({}, own)};
    world.broadcast(tensors);
    for (const at::Tensor& tensor : tensors) {
      EXPECT_EQ(tensor.min().item<double>(), 7);
      EXPECT_EQ(tensor.max().item<double>(), 7);
    }
    world.broadcast({});
  });
}

TEST_P(GroupOf, GathersTextsAndPartsByRank) {
  run_in_group(GetParam(), [](ProcessGroup& world) {
    for (int round = 0; round < 20; ++round) {
      const auto texts = world.gather("a test", std::to_string(10 * round + world.rank()));
      ASSERT_EQ(std::ssize(texts), world.size());
      for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], std::to_string(10 * round + static_cast<int>(i)));
    }
    EXPECT_EQ(world.from_leader("a test", "from " + std::to_string(world.rank())), "from 0");
    EXPECT_EQ(world.gather("long texts", std::string(3'000'000, 'x')).back().size(), 3'000'000U);
    const auto parts = world.gather_parts("a test", [&] { return nlohmann::json{{"rank", world.rank()}}; });
    ASSERT_EQ(std::ssize(parts), world.size());
    for (size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(parts[i].at("rank"), i);
  });
}

INSTANTIATE_TEST_SUITE_P(Processes, GroupOf, testing::Values(1, 2, 3));

// A launcher's store outlives the processes that it starts again, on some machines only or on all.
TEST(ProcessGroup, AStoreWithTextsOfEarlierStartsServesAnother) {
  const int64_t port = testing_support::free_port();
  c10d::TCPStoreOptions serving;
  serving.port = static_cast<std::uint16_t>(port);
  serving.isServer = true;
  serving.waitWorkers = false;
  serving.useLibUV = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", serving);
  const auto start = [&](int64_t rank, const std::string& text, int late) {
    Launch launch = testing_support::local_launch(rank, 2, port);
    launch.store_exists = true;
    ProcessGroup world(launch, {.timeout = std::chrono::seconds(20)});
    std::this_thread::sleep_for(std::chrono::milliseconds(late));
    EXPECT_EQ(world.from_leader("a test", text), text) << "and no earlier text";
  };
  for (const std::string text : {"first", "second", "third"}) {
    std::thread other([&] { start(1, text, 0); });
    start(0, text, 200);
    other.join();
  }
}

TEST(ProcessGroup, AStopOfOneInItsPartStopsAll) {
  const SignalWatch signals;
  run_in_group(3, [](ProcessGroup& world) {
    const std::string message = error_of<std::exception>([&] {
      world.gather_parts("a test", [&]() -> nlohmann::json {
        if (world.rank() == 1) throw Interrupted(SIGTERM, "half is saved");
        return true;
      });
    });
    EXPECT_THAT(message, HasSubstr("half is saved"));
  });
}

TEST(ProcessGroup, LeavingEarlyDoesNotEndTheConnectingOfOthers) {
  for (int round = 0; round < 6; ++round) run_in_group(8, [](ProcessGroup&) {});
}

TEST(ProcessGroup, NamesTheProcessThatDiffers) {
  EXPECT_THAT(error_of<std::exception>([] {
                run_in_group(
                    3, [](ProcessGroup& world) { world.require_same("the recipe", world.rank() == 2 ? "b7" : "a1"); });
              }),
              AllOf(HasSubstr("the processes of one group differ in the recipe"), HasSubstr("process 2: b7")));
}

TEST(ProcessGroup, NamesAProcessThatDoesNotComeInTime) {
  EXPECT_THAT(error_of<std::exception>([] {
                const ProcessGroup alone(testing_support::local_launch(0, 2, testing_support::free_port()),
                                         {.timeout = std::chrono::seconds(1)});
              }),
              AllOf(HasSubstr("not all processes of the group came to the start"), HasSubstr("no sign of process 1")));
  run_in_group(
      2,
      [](ProcessGroup& world) {
        if (world.rank() == 1) return std::this_thread::sleep_for(std::chrono::seconds(3));
        const at::Tensor tensor = at::ones({3});
        EXPECT_THAT(error_of<std::exception>([&] { world.sum({tensor}); }),
                    HasSubstr("was lost or did not answer in time, during a sum over all processes"));
      },
      std::chrono::seconds(1));
}

TEST(ProcessGroup, NamesAPortThatIsTaken) {
  const int64_t port = testing_support::free_port();
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  ASSERT_EQ(::bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(descriptor, 1), 0);
  const std::string message = error_of<std::exception>([&] {
    const ProcessGroup refused(testing_support::local_launch(0, 2, port), {.timeout = std::chrono::seconds(2)});
  });
  ::close(descriptor);
  EXPECT_THAT(message, testing::AllOf(HasSubstr("the port of the process group is taken"), HasSubstr("MASTER_PORT")));
}

TEST(ProcessGroup, NamesAHostWithoutAStore) {
  const std::string message = error_of<std::exception>([] {
    const ProcessGroup refused(testing_support::local_launch(1, 2, testing_support::free_port()),
                               {.timeout = std::chrono::seconds(2)});
  });
  EXPECT_THAT(message, HasSubstr("process 1 of 2 cannot reach the group's store"));
}

}  // namespace
}  // namespace draftsmith
