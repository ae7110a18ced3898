// Evaluations by several processes of one job: `draftsmith eval`, and the evaluate stage of a recipe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/job_recipe.h"
#include "tests/support/untimed_results.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kEvaluated = R"(
name = "suite"
model = "WORK/target/model"
max_new_tokens = 12
repetitions = 1
warmup = 1
forced_lines = 5
resamples = 20
batch_size = 2
[[drafter]]
name = "drafter"
model = "WORK/drafter/model"
[[task]]
name = "test"
source = "WORK/language/valid.src"
references = ["WORK/language/valid.tgt"]
[[run]]
method = "assisted"
drafter = ["drafter"]
[[run]]
method = "speculative"
drafter = ["drafter"]
temperature = [0.8]
[[match_rates]]
name = "early"
prompts = 4
)";

class JobEvaluation : public JobProgram {
 protected:
  void SetUp() override {
    JobProgram::SetUp();
    run_alone("work", {"--until", "drafter"});
    std::string suite = kEvaluated;
    for (size_t at = suite.find("WORK"); at != std::string::npos; at = suite.find("WORK")) {
      suite.replace(at, 4, work("work"));
    }
    write_file_atomic(folder_ / "suite.toml", suite);
  }

  std::vector<std::string> evaluation(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> line{"eval", folder_ / "suite.toml", "--out", work(out), "--threads", "1"};
    line.insert(line.end(), more.begin(), more.end());
    return line;
  }

  // Waits until so many measurements of a kind are finished, by any process.
  static void await_measurements(const fs::path& out, const std::string& kind, int64_t wanted) {
    for (int i = 0; i < 3000; ++i) {
      int64_t found = 0;
      for (const char* file : {"measurements.jsonl", "measurements.1.jsonl", "measurements.2.jsonl"}) {
        if (!fs::exists(out / file)) continue;
        for (const std::string& line : lines_of(read_file(out / file))) {
          found += line.find("[\\\"" + kind + "\\\"") != std::string::npos ? 1 : 0;
        }
      }
      if (found >= wanted) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "too few measurements " << kind << " in " << out;
  }
};

TEST_F(JobEvaluation, GivesTheResultsOfOneProcess) {
  const ProgramResult alone = run_program(evaluation("one"));
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const auto results = Job(3, evaluation("three")).wait();
  for (const ProgramResult& process : results) ASSERT_EQ(process.exit_code, 0) << process.err;
  const auto one = load_json(work("one") + "/results.json"), three = load_json(work("three") + "/results.json");
  EXPECT_EQ(untimed_results(three).dump(1), untimed_results(one).dump(1));
  EXPECT_EQ(three.at("environment").at("threads"), one.at("environment").at("threads"));
  for (const auto& entry : fs::directory_iterator(work("one") + "/hyp")) {
    EXPECT_EQ(read_file(work("three") + "/hyp/" + entry.path().filename().string()), read_file(entry.path()));
  }
  EXPECT_THAT(results[0].out, HasSubstr("written: "));
  EXPECT_EQ(results[1].out, "") << "the leader alone speaks";
  for (const auto& entry : fs::directory_iterator(work("three"))) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("measurements.")) << entry.path();
  }
}

TEST_F(JobEvaluation, AFailureOfOneProcessEndsAllWithItsMessage) {
  fs::create_directories(work("out") + "/measurements.1.jsonl");  // where process 1 writes a file
  const auto results = Job(3, evaluation("out")).wait();
  for (const ProgramResult& process : results) {
    EXPECT_EQ(process.exit_code, 1) << process.err;
    EXPECT_THAT(process.err, HasSubstr("the file of measurements cannot be written"));
  }
  EXPECT_THAT(results[0].err, HasSubstr("process 1 of 3 failed"));
}

TEST_F(JobEvaluation, RefusesProcessesWithOtherOutputDirectories) {
  for (const ProgramResult& process : Job({evaluation("here"), evaluation("there")}).wait()) {
    EXPECT_EQ(process.exit_code, 2);
    EXPECT_THAT(process.err, HasSubstr("do not share this directory"));
  }
}

// The others wait for the leader's times, and ask the store that it serves.
TEST_F(JobEvaluation, NamesALeaderThatStandsStillWhileItTimes) {
  Job job(3, evaluation("out", {"--set", "repetitions=100", "--timeout", "3"}));
  await_measurements(work("out"), "forced", 3);                 // the last ones that are dealt out before
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // until the leader times
  job.process(0).send(SIGSTOP);
  for (const int rank : {1, 2}) {
    const ProgramResult process = job.process(rank).wait();
    EXPECT_EQ(process.exit_code, 1) << process.err;
    EXPECT_THAT(process.err, HasSubstr("process 0 of 3, which serves the job's store, has given no answer for 3 s"));
    EXPECT_THAT(process.err, HasSubstr("during the timing of task test"));
  }
}

}  // namespace
}  // namespace draftsmith::test
