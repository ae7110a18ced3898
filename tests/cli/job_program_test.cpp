// `draftsmith train` as several processes of one job: the same results as one, and clear ends when one is lost.
#include <csignal>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "tests/cli/job_recipe.h"
#include "tests/support/untimed_results.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;

TEST_F(JobProgram, TrainsAsOneProcessDoes) {
  run_alone("one", {"--until", "target"});
  for (const ProgramResult& process : Job(3, arguments("three", {"--until", "target"})).wait()) {
    ASSERT_EQ(process.exit_code, 0) << process.err;
  }
  EXPECT_NEAR(last_loss(work("three")), last_loss(work("one")), 1e-4 * last_loss(work("one")));
  EXPECT_EQ(fs::read_symlink(work("three") + "/target").filename(),
            fs::read_symlink(work("one") + "/target").filename());
  EXPECT_TRUE(load_json(work("three") + "/target/checkpoints/last/state.json").at("state").at("finished"));
}

TEST_F(JobProgram, GivesTheFilesOfOneProcess) {
  run_alone("work");
  std::map<std::string, std::string> files;  // path -> content
  for (const char* file : {"/outputs/corpus.h5", "/logits/teacher_logits.h5", "/positions/router_data.h5"}) {
    files[work("work") + file] = read_file(work("work") + file);
  }
  const std::string evaluated = untimed_results(load_json(work("work") + "/evaluation/results.json")).dump(1);
  for (const char* stage : {"/outputs", "/logits", "/positions", "/evaluation"}) {
    fs::remove_all(fs::canonical(work("work") + stage));
  }
  const auto results = Job(3, arguments("work", {"--threads", "1"})).wait();
  for (const ProgramResult& process : results) ASSERT_EQ(process.exit_code, 0) << process.err;
  for (const auto& [file, content] : files) EXPECT_TRUE(read_file(file) == content) << file;
  EXPECT_EQ(untimed_results(load_json(work("work") + "/evaluation/results.json")).dump(1), evaluated);
  EXPECT_THAT(results[0].out, HasSubstr("Results:"));
  EXPECT_EQ(results[1].out, "") << "the leader alone speaks";
  EXPECT_THAT(results[1].err, testing::Not(HasSubstr("finished")));
}

TEST_F(JobProgram, GoesOnWithFewerAfterALoss) {
  for (const int lost : {2, 0}) {
    const std::string name = "lost" + std::to_string(lost);
    Job job(3, arguments(name, long_target()));
    await_steps(name, 25);
    job.process(lost).send(SIGKILL);
    const auto results = job.wait();
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == lost) continue;
      const ProgramResult& process = results[static_cast<size_t>(rank)];
      EXPECT_EQ(process.exit_code, 1) << rank << process.err;
      EXPECT_THAT(process.err, AnyOf(HasSubstr("lost or did not answer"), HasSubstr("the job ends"))) << rank;
    }
    ASSERT_TRUE(fs::exists(work(name) + "/target/checkpoints/last/DONE"));
    for (const ProgramResult& process : Job(2, arguments(name, long_target())).wait()) {
      ASSERT_EQ(process.exit_code, 0) << process.err;
    }
  }
  run_alone("whole", long_target());
  EXPECT_NEAR(last_loss(work("lost2")), last_loss(work("whole")), 0.05);
}

// Nothing is heard of it, though it is not dead. Process 0 serves the store of the others.
TEST_F(JobProgram, NamesAProcessThatStandsStillInTraining) {
  for (const int still : {2, 0}) {
    const std::string name = "still" + std::to_string(still);
    std::vector<std::string> patient = long_target();
    patient.insert(patient.end(), {"--timeout", "3"});
    Job job(3, arguments(name, patient));
    await_steps(name, 5);
    job.process(still).send(SIGSTOP);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == still) continue;
      const ProgramResult process = job.process(rank).wait();
      EXPECT_EQ(process.exit_code, 1) << rank << process.err;
      EXPECT_THAT(process.err,
                  HasSubstr(still == 0 ? "process 0 of 3, which serves the job's store, has given no answer "
                                         "for 3 s"
                                       : "process 2 of 3 has given no sign of life for 3 s"));
      EXPECT_THAT(process.err, HasSubstr("during a sum over all processes"));
    }
  }
}

TEST_F(JobProgram, EndsTogetherWhenTheLeadersDiskIsFull) {
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);  // which the processes inherit
  Job job(3, arguments("full", long_target()));
  std::signal(SIGXFSZ, handler);
  await_steps("full", 25);
  job.process(0).limit_files(1 << 14);
  const auto results = job.wait();
  for (const ProgramResult& process : results) EXPECT_EQ(process.exit_code, 1) << process.err;
  for (int rank : {1, 2}) {
    EXPECT_THAT(results[static_cast<size_t>(rank)].err, HasSubstr("process 0 of 3 failed: "));
    EXPECT_THAT(results[static_cast<size_t>(rank)].err, HasSubstr("File too large"));
  }
  for (const ProgramResult& process : Job(3, arguments("full", long_target())).wait()) {
    EXPECT_EQ(process.exit_code, 0) << process.err;
  }
}

TEST_F(JobProgram, EndsTogetherWhenOneIsAskedTo) {
  Job job(3, arguments("stopped", long_target()));
  await_steps("stopped", 25);
  job.process(1).send(SIGTERM);
  for (const ProgramResult& process : job.wait()) {
    EXPECT_EQ(process.exit_code, 143) << process.err;
    EXPECT_THAT(process.err, HasSubstr("training stopped after step"));
  }
  const auto state = load_json(work("stopped") + "/target/checkpoints/last/state.json").at("state");
  EXPECT_GE(state.at("step"), 25);
  EXPECT_EQ(std::ssize(lines_of(read_file(work("stopped") + "/target/metrics.jsonl"))), state.at("step"));
}

TEST_F(JobProgram, RefusesProcessesWithOtherRecipes) {
  for (const ProgramResult& process :
       Job({arguments("other"), arguments("other", {"--set", "target.training.length=31 steps"})}).wait()) {
    EXPECT_EQ(process.exit_code, 2);
    EXPECT_THAT(process.err, HasSubstr("the processes of one job differ in the recipe"));
  }
  EXPECT_FALSE(fs::exists(work("other") + "/language"));
}

TEST_F(JobProgram, RefusesProcessesWithOtherWorkDirectories) {
  fs::create_directories(work("there"));
  for (const ProgramResult& process : Job({arguments("here"), arguments("there")}).wait()) {
    EXPECT_EQ(process.exit_code, 2);
    EXPECT_THAT(process.err, HasSubstr("do not share this directory"));
  }
}

TEST_F(JobProgram, RefusesAWorkDirectoryInUse) {
  Job first(2, arguments("busy", long_target()));
  await_steps("busy", 5);
  const auto second = Job(2, arguments("busy", long_target())).wait();
  EXPECT_EQ(second[0].exit_code, 2);
  EXPECT_THAT(second[0].err, HasSubstr("another run is working in this directory"));
  EXPECT_THAT(second[1].err, HasSubstr("another run is working in this directory"));
  EXPECT_TRUE(first.process(0).runs());
}

TEST_F(JobProgram, NamesAVariableThatIsMissing) {
  ProcessBeside process(arguments("none"), {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  const ProgramResult result = process.wait();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("MASTER_ADDR"));
  EXPECT_FALSE(fs::exists(work("none")));
}

}  // namespace
}  // namespace draftsmith::test
