// `draftsmith train` as several processes of one job: the same results as one, and clear ends when one is lost.
#include <chrono>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "tests/cli/job.h"
#include "tests/support/files.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;

const std::string kJobRecipe = std::string("name = \"tiny\"\n") + kTinyLanguage + R"(
[corpus]
kind = "corpus"
tokenizer = "@tokenizer/spiece.model"
source = "@language/train.src"
target = "@language/train.tgt"
[defaults.train]
tokenizer = "@tokenizer/spiece.model"
corpus = "@corpus/corpus.h5"
training = { length = "30 steps", accumulate = 3, batches = { token_budget = 200 }, checkpoint_every = "10 steps", log_every = 1, tensorboard = false }
[target]
kind = "train"
architecture = { width = 32, heads = 2, head_width = 16, ff_width = 48, encoder_layers = 2, decoder_layers = 2, embedding_std = 0.1 }
[outputs]
kind = "teacher-outputs"
model = "@target/model"
corpus = "@corpus/corpus.h5"
limit = 100
max_new_tokens = 12
shard_examples = 16
[logits]
kind = "teacher-logits"
model = "@target/model"
corpus = "@corpus/corpus.h5"
k = 4
shard_examples = 64
measured_positions = 50
[drafter]
kind = "train"
architecture = { width = 16, heads = 1, head_width = 16, ff_width = 24, encoder_layers = 1, decoder_layers = 1, embedding_std = 0.1 }
[positions]
kind = "router-data"
model = "@target/model"
drafter = "@drafter/model"
corpus = "@corpus/corpus.h5"
limit = 60
max_new_tokens = 12
shard_examples = 8
)";

class JobProgram : public testing::Test {
 protected:
  void SetUp() override { write_file_atomic(folder_ / "tiny.toml", kJobRecipe); }

  std::string work(const std::string& name) const { return folder_ / name; }
  std::vector<std::string> arguments(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> line{"train", folder_ / "tiny.toml", "--work", work(name)};
    line.insert(line.end(), more.begin(), more.end());
    return line;
  }
  // Runs the recipe with one process.
  void run_alone(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> line = arguments(name, more);
    line.insert(line.end(), {"--threads", "1"});
    const ProgramResult alone = run_program(line);
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
  }

  // Waits until the target's training has logged so many steps.
  void await_steps(const std::string& name, int64_t steps) const {
    const fs::path log = work(name) + "/target/metrics.jsonl";
    for (int i = 0; i < 3000; ++i) {
      if (fs::exists(log) && std::ssize(lines_of(read_file(log))) >= steps) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "no training in " << log;
  }

  static double last_loss(const std::string& directory) {
    return nlohmann::json::parse(lines_of(read_file(directory + "/target/metrics.jsonl")).back()).at("loss");
  }

  // A training that takes long enough to be disturbed.
  static std::vector<std::string> long_target() {
    return {"--until", "target", "--set", "target.training.length=400 steps"};
  }

  TemporaryDirectory folder_;
};

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
  for (const char* stage : {"/outputs", "/logits", "/positions"}) fs::remove_all(fs::canonical(work("work") + stage));
  const auto results = Job(3, arguments("work")).wait();
  for (const ProgramResult& process : results) ASSERT_EQ(process.exit_code, 0) << process.err;
  for (const auto& [file, content] : files) EXPECT_TRUE(read_file(file) == content) << file;
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
