// `draftsmith train` as two processes of torchrun: the results of one, a restart after a loss, and clear refusals.
#include <chrono>
#include <filesystem>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"
#include "tests/support/paths.h"
#include "tests/support/process_groups.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;

const std::string kSharedRecipe = std::string("name = \"tiny\"\n") + kTinyLanguage + R"(
[corpus]
kind = "corpus"
tokenizer = "@tokenizer/spiece.model"
source = "@language/train.src"
target = "@language/train.tgt"
[target]
kind = "train"
tokenizer = "@tokenizer/spiece.model"
corpus = "@corpus/corpus.h5"
architecture = { width = 32, heads = 2, head_width = 16, ff_width = 48, encoder_layers = 2, decoder_layers = 2, embedding_std = 0.1 }
training = { length = "30 steps", accumulate = 2, batches = { token_budget = 200 }, checkpoint_every = "10 steps", log_every = 1 }
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
[evaluation]
kind = "evaluate"
model = "@target/model"
task = { name = "test", source = "@language/test.src", references = ["@language/test.tgt"] }
)";

class TorchrunProgram : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(torchrun())) GTEST_SKIP() << "no " << torchrun();
    write_file_atomic(folder_ / "tiny.toml", kSharedRecipe);
  }

  static std::string torchrun() { return source_dir() / ".venv/bin/torchrun"; }
  std::string work(const std::string& name) const { return folder_ / name; }

  // Returns a shell's command line, in which torchrun's variables such as $RANK may stand.
  std::string train(const std::string& name, const std::string& more) const {
    return fmt::format("'{}' train '{}' --threads 1 --work {} {}", draftsmith_binary(), work("tiny.toml"), work(name),
                       more);
  }
  static std::vector<std::string> in_two(const std::string& command, int restarts = 0) {
    return {torchrun(),
            "--nproc-per-node=2",
            fmt::format("--max-restarts={}", restarts),
            fmt::format("--master-port={}", testing_support::free_port()),
            "--no-python",
            "sh",
            "-c",
            "exec " + command};
  }
  static ProgramResult run_in_two(const std::string& command) { return ProcessBeside(in_two(command)).wait(); }

  void run_alone(const std::string& name, const std::string& last) const {
    const ProgramResult alone =
        run_program({"train", work("tiny.toml"), "--threads", "1", "--work", work(name), "--until", last});
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
  }

  std::vector<std::string> steps(const std::string& name) const {
    const fs::path log = work(name) + "/target/metrics.jsonl";
    return fs::exists(log) ? lines_of(read_file(log)) : std::vector<std::string>();
  }
  double last_loss(const std::string& name) const { return nlohmann::json::parse(steps(name).back()).at("loss"); }

  TemporaryDirectory folder_;
};

TEST_F(TorchrunProgram, TrainsAsOneProcessDoesAndGivesItsFiles) {
  run_alone("one", "logits");
  const ProgramResult trained = run_in_two(train("two", "--until target"));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NEAR(last_loss("two"), last_loss("one"), 1e-4 * last_loss("one"));
  EXPECT_EQ(fs::read_symlink(work("two") + "/target").filename(), fs::read_symlink(work("one") + "/target").filename());
  const std::string outputs = work("one") + "/outputs/corpus.h5", logits = work("one") + "/logits/teacher_logits.h5";
  const std::string expected_outputs = read_file(outputs), expected_logits = read_file(logits);
  for (const char* stage : {"/outputs", "/logits"}) fs::remove_all(fs::canonical(work("one") + stage));
  const ProgramResult shared = run_in_two(train("one", "--until logits"));
  ASSERT_EQ(shared.exit_code, 0) << shared.err;
  EXPECT_TRUE(read_file(outputs) == expected_outputs);
  EXPECT_TRUE(read_file(logits) == expected_logits);
  EXPECT_EQ(shared.out.find("Results:"), shared.out.rfind("Results:")) << "the leader alone speaks";
}

TEST_F(TorchrunProgram, IsRestartedAfterALossAndEndsWithTheBitsOfAWholeRun) {
  const std::string longer = "--until target --set target.training.length='150 steps'";
  ProcessBeside job(in_two(train("lost", longer), 1));
  for (int i = 0; i < 12000 && steps("lost").size() < 25; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::vector<pid_t> processes = job.children();
  ASSERT_EQ(processes.size(), 2U);
  ::kill(processes.back(), SIGKILL);
  const ProgramResult lost = job.wait();
  EXPECT_EQ(lost.exit_code, 0) << lost.err;
  EXPECT_THAT(lost.err, HasSubstr("going on from "));
  const ProgramResult whole = run_in_two(train("whole", longer));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_EQ(steps("lost").size(), 150U);
  const std::string weights = "/target/model/model.safetensors";
  EXPECT_TRUE(read_file(work("lost") + weights) == read_file(work("whole") + weights));
}

TEST_F(TorchrunProgram, RefusesAnEvaluationBeforeAnyWork) {
  const ProgramResult recipe = run_in_two(train("work", ""));
  EXPECT_NE(recipe.exit_code, 0);
  EXPECT_THAT(recipe.err, testing::AllOf(HasSubstr("an evaluation runs in one process"), HasSubstr("--until")));
  EXPECT_FALSE(fs::exists(work("work") + "/language"));
  const ProgramResult suite = run_in_two(draftsmith_binary() + " eval suite.toml");
  EXPECT_NE(suite.exit_code, 0);
  EXPECT_THAT(suite.err, HasSubstr("start it without torchrun"));
}

TEST_F(TorchrunProgram, RefusesProcessesWithOtherRecipesOrWorkDirectories) {
  const ProgramResult recipes =
      run_in_two(train("other", "--until target --set target.training.length=3$RANK' steps'"));
  EXPECT_NE(recipes.exit_code, 0);
  EXPECT_THAT(recipes.err, HasSubstr("the processes of one group differ in the recipe"));
  EXPECT_FALSE(fs::exists(work("other") + "/language"));
  const ProgramResult directories = run_in_two(train("of$RANK", "--until target"));
  EXPECT_NE(directories.exit_code, 0);
  EXPECT_THAT(directories.err, HasSubstr("do not share this work directory"));
}

}  // namespace
}  // namespace draftsmith::test
