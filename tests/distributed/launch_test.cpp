#include "distributed/launch.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace draftsmith {
namespace {

Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string refusal_of(std::map<std::string, std::string> variables) {
  try {
    find_launch(environment_of(std::move(variables)));
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Launch, IsNothingForAProcessByItself) {
  EXPECT_EQ(find_launch(environment_of({})), std::nullopt);
  EXPECT_EQ(find_launch(environment_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}})), std::nullopt);
  EXPECT_EQ(find_launch(environment_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}})), std::nullopt)
      << "a batch script outside of srun";
}

TEST(Launch, ReadsTorchrun) {
  const auto launch = find_launch(environment_of({{"RANK", "5"},
                                                  {"WORLD_SIZE", "8"},
                                                  {"LOCAL_RANK", "1"},
                                                  {"LOCAL_WORLD_SIZE", "4"},
                                                  {"MASTER_ADDR", "10.0.0.1"},
                                                  {"MASTER_PORT", "29400"},
                                                  {"TORCHELASTIC_RUN_ID", "job"},
                                                  {"TORCHELASTIC_RESTART_COUNT", "2"},
                                                  {"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  const Launch expected{.launcher = "torchrun",
                        .rank = 5,
                        .size = 8,
                        .local_rank = 1,
                        .local_size = 4,
                        .host = "10.0.0.1",
                        .port = 29400,
                        .store_exists = true,
                        .attempt = "job/2"};
  EXPECT_EQ(launch, expected);
}

TEST(Launch, ReadsVariablesSetByHand) {
  const auto launch = find_launch(
      environment_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29400"}}));
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_size, 2);
  EXPECT_FALSE(launch->store_exists);
}

TEST(Launch, ReadsSlurm) {
  const auto launch = find_launch(environment_of({{"SLURM_PROCID", "3"},
                                                  {"SLURM_STEP_NUM_TASKS", "4"},
                                                  {"SLURM_LOCALID", "1"},
                                                  {"SLURM_STEP_TASKS_PER_NODE", "1,2(x1),1"},
                                                  {"SLURM_STEP_NODELIST", "node[07-12,15],login"},
                                                  {"SLURM_JOB_ID", "1234567"},
                                                  {"SLURM_STEP_ID", "0"}}));
  const Launch expected{.launcher = "Slurm",
                        .rank = 3,
                        .size = 4,
                        .local_rank = 1,
                        .local_size = 2,
                        .host = "node07",
                        .port = 34567,
                        .attempt = "1234567.0.0"};
  EXPECT_EQ(launch, expected);
}

TEST(Launch, ReadsOpenMpi) {
  std::map<std::string, std::string> variables{{"OMPI_COMM_WORLD_RANK", "1"},
                                               {"OMPI_COMM_WORLD_SIZE", "2"},
                                               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  const auto launch = find_launch(environment_of(variables));
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->host, "127.0.0.1");
  EXPECT_EQ(launch->port, 29500);
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  variables["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  EXPECT_THAT(refusal_of(variables), testing::HasSubstr("MASTER_ADDR"));
}

TEST(Launch, NamesEveryVariableThatIsMissingOrWrong) {
  EXPECT_THAT(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              testing::AllOf(testing::HasSubstr("MASTER_ADDR"), testing::HasSubstr("MASTER_PORT")));
  EXPECT_THAT(refusal_of({{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}),
              testing::HasSubstr("RANK"));
  EXPECT_THAT(refusal_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}),
              testing::HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(refusal_of({{"RANK", "x"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "99999"}}),
              testing::AllOf(testing::HasSubstr("MASTER_PORT"), testing::HasSubstr("RANK")));
}

TEST(Launch, FindsTheFirstHostOfALists) {
  EXPECT_EQ(first_host("node7"), "node7");
  EXPECT_EQ(first_host("node7,node8"), "node7");
  EXPECT_EQ(first_host("node[07-12]"), "node07");
  EXPECT_EQ(first_host("node[7,9],x"), "node7");
  EXPECT_EQ(first_host("rack1-[3-4]-ib,x"), "rack1-3-ib");
}

}  // namespace
}  // namespace draftsmith
