#include <cstdlib>
#include <map>

#include <gmock/gmock.h>

#include "distributed/process_group.h"
#include "tests/support/errors.h"

namespace draftsmith {
namespace {

// Returns the launch of a process with these variables and none of torchrun's others.
std::optional<Launch> launch_of(const std::map<std::string, std::string>& variables) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                           "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE"}) {
    ::unsetenv(name);
  }
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  return find_launch();
}

std::string refusal_of(const std::map<std::string, std::string>& variables) {
  return error_of([&] { launch_of(variables); });
}

TEST(Launch, IsNothingForAProcessByItself) {
  EXPECT_EQ(launch_of({}), std::nullopt);
  EXPECT_EQ(launch_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), std::nullopt);
}

TEST(Launch, ReadsTorchrun) {
  const auto launch = launch_of({{"RANK", "5"},
                                 {"WORLD_SIZE", "8"},
                                 {"LOCAL_RANK", "1"},
                                 {"LOCAL_WORLD_SIZE", "4"},
                                 {"MASTER_ADDR", "10.0.0.1"},
                                 {"MASTER_PORT", "29400"},
                                 {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  const Launch expected{
      .rank = 5, .size = 8, .local_rank = 1, .local_size = 4, .host = "10.0.0.1", .port = 29400, .store_exists = true};
  EXPECT_EQ(launch, expected);
}

TEST(Launch, ReadsVariablesSetByHand) {
  const auto launch =
      launch_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29400"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_size, 2);
  EXPECT_FALSE(launch->store_exists);
}

TEST(Launch, NamesEveryVariableThatIsMissingOrWrong) {
  EXPECT_THAT(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              AllOf(HasSubstr("MASTER_ADDR"), HasSubstr("MASTER_PORT")));
  EXPECT_THAT(refusal_of({{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}), HasSubstr("RANK"));
  EXPECT_THAT(refusal_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}),
              HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(refusal_of({{"RANK", "x"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "99999"}}),
              AllOf(HasSubstr("MASTER_PORT"), HasSubstr("RANK")));
}

}  // namespace
}  // namespace draftsmith
