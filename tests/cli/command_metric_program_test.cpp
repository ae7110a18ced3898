// The metric "command" as a user meets it: suites that a script scores, and scripts that die or answer wrongly.
#include <csignal>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/json.h"
#include "model/files/checkpoint.h"
#include "tests/cli/process_beside.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/paths.h"

namespace draftsmith::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kSameWords = "awk -F'\\t' '{print ($1 == $2) ? 1 : length($1) / 1000}'\n";

class CommandMetricProgram : public testing::Test {
 protected:
  void SetUp() override {
    model::save_model(root_ / "target", model::TransformerModel(model::t5_config(), 1));
    model::save_model(root_ / "small", model::TransformerModel(model::t5_config(), 2));
    for (const char* task : {"val", "test"}) {
      write_text(root_ / task, task == std::string("val") ? "5 20 7 1\n6 19 9 1\n8 3 1\n" : "9 11 7 1\n6 4 9 1\n");
      write_text(root_ / (task + std::string(".ref")), task == std::string("val") ? "5 6\n7 8\n9\n" : "5 6\n7 8\n");
    }
    score_by(kSameWords);
    write_suite("sh " + (root_ / "score.sh").string());
  }
  void score_by(const std::string& script) const { write_text(root_ / "score.sh", script); }
  // `metric` are further keys of the metric, after a comma.
  void write_suite(const std::string& command, const std::string& metric = ", point = 0.01",
                   const std::string& max_drop = "1000") const {
    std::string suite = fmt::format(
        "model = \"{0}/target\"\nrepetitions = 1\nmax_new_tokens = 8\nresamples = 10\nforced_lines = 0\nwarmup = 0\n"
        "dtype = \"fp64\"\n[[drafter]]\nname = \"small\"\nmodel = \"{0}/small\"\n",
        root_.path().string());
    for (const char* task : {"val", "test"}) {
      suite += fmt::format(
          "[[task]]\nname = \"{1}\"\nsource = \"{0}/{1}\"\nreferences = [\"{0}/{1}.ref\"]\nids = true\n"
          "metric = {{ command = \"{2}\", label = \"words\"{3} }}\n",
          root_.path().string(), task, command, metric);
    }
    write_text(root_ / "suite.toml", suite +
                                         "[[run]]\nmethod = \"bild\"\ndrafter = [\"small\"]\nfallback = [0.0, 0.9]\n"
                                         "rollback = [5]\nchoose_on = \"val\"\nmax_drop = [" +
                                         max_drop + "]\n");
  }
  std::vector<std::string> eval_line() const {
    return {"eval", (root_ / "suite.toml").string(), "--out", results(), "--device", "cpu", "--threads", "1"};
  }
  std::string results() const { return (root_ / "results").string(); }

  const TemporaryDirectory root_;
};

TEST_F(CommandMetricProgram, ChoosesBySuitesOwnMeasureAndReportsWithoutIt) {
  const ProgramResult evaluated = run_program(eval_line());
  ASSERT_EQ(evaluated.exit_code == 0 || evaluated.err.find("measurement error") != std::string::npos, true)
      << evaluated.err;  // beside other processes the times of models this small may exceed their bound
  EXPECT_THAT(evaluated.err, HasSubstr("task val is scored by the command: sh " + root_.path().string()));
  EXPECT_THAT(evaluated.out, AllOf(HasSubstr("words"), HasSubstr("bild.small.drop1000")));
  const auto task = load_json(results() + "/results.json").at("tasks").at(1);
  EXPECT_EQ(task.at("metric"), "command");
  EXPECT_EQ(task.at("command_metric").at("label"), "words");
  EXPECT_TRUE(task.at("runs").at(1).contains("chosen"));
  std::filesystem::remove(root_ / "score.sh");
  const ProgramResult report = run_program({"report", results()});
  EXPECT_EQ(report.exit_code, 0) << report.err;
  EXPECT_THAT(evaluated.out, HasSubstr(report.out));
  EXPECT_EQ(run_program({"report", results(), "--html", (root_ / "page.html").string()}).exit_code, 0);
  const ProgramResult compared = run_program({"compare", results(), results(), "--fail-on-worse", "0"});
  EXPECT_EQ(compared.exit_code, 0) << compared.err;
  EXPECT_THAT(compared.out, HasSubstr("words"));
}

// Two errors a line for outputs that greedy decoding does not give, which a first evaluation wrote down. With threshold
// 0.9 these models' drafter never decides, so the outputs are greedy decoding's; with 0 it decides everything.
TEST_F(CommandMetricProgram, ErrorsAreLostUpwards) {
  write_suite("sh " + (root_ / "score.sh").string(), ", lower_is_better = true", "0, 1000");
  run_program(eval_line());
  const std::string greedy = read_file(results() + "/hyp/val.greedy.txt");
  ASSERT_EQ(read_file(results() + "/hyp/val.bild.small.FB0.9.RB5.txt"), greedy);
  ASSERT_NE(read_file(results() + "/hyp/val.bild.small.FB0.RB5.txt"), greedy);
  write_text(root_ / "right", greedy + read_file(results() + "/hyp/test.greedy.txt"));
  score_by("awk -F'\\t' 'NR == FNR {right[$0]; next} {print ($1 in right) ? 1 : 3}' " + (root_ / "right").string() +
           " -\n");
  std::filesystem::remove_all(results());
  run_program(eval_line());
  const auto tasks = load_json(results() + "/results.json").at("tasks");
  EXPECT_EQ(tasks.at(0).at("chooses"), true);
  EXPECT_EQ(tasks.at(0).at("command_metric").at("lower_is_better"), true);
  EXPECT_EQ(tasks.at(0).at("baseline").at("quality").at("words"), 1.0);
  for (const auto& run : tasks.at(0).at("runs")) {
    if (run.at("name") != "bild.small.FB0.RB5") continue;
    EXPECT_EQ(run.at("quality").at("difference"), 2.0);
  }
  bool found = false;
  for (const auto& run : tasks.at(1).at("runs")) {
    if (run.at("name") != "bild.small.drop0") continue;
    found = true;
    EXPECT_EQ(run.at("chosen").at("setting"), "bild.small.FB0.9.RB5") << "the other one adds two errors a line";
    EXPECT_EQ(run.at("chosen").at("drop_there"), 0.0);
    EXPECT_EQ(run.at("chosen").at("allowed"), true);
  }
  EXPECT_TRUE(found);
}

TEST_F(CommandMetricProgram, ACommandThatFailsOrAnswersWronglyIsFoundFirst) {
  score_by("echo cannot load the model >&2; exit 3\n");
  const ProgramResult died = run_program(eval_line());
  EXPECT_EQ(died.exit_code, 2);
  EXPECT_THAT(died.err, AllOf(HasSubstr("exit code 3"), HasSubstr("cannot load the model"), HasSubstr("task val")));
  score_by("echo 1\n");
  const ProgramResult short_answer = run_program(eval_line());
  EXPECT_EQ(short_answer.exit_code, 2);
  EXPECT_THAT(short_answer.err, AllOf(HasSubstr("too few lines"), HasSubstr("2 lines, one a segment")));
  EXPECT_FALSE(std::filesystem::exists(results()));
}

TEST_F(CommandMetricProgram, ADeathDuringTheEvaluationLosesNoMeasurement) {
  // Greedy decoding's outputs are other than the references of the trial.
  score_by("awk -F'\\t' '$1 != $2 {exit 7} {print 1}'\n");
  const ProgramResult died = run_program(eval_line());
  EXPECT_EQ(died.exit_code, 1);
  EXPECT_THAT(died.err, AllOf(HasSubstr("the command failed"), HasSubstr("exit code 7")));
  EXPECT_TRUE(std::filesystem::exists(results() + "/measurements.jsonl"));
  score_by(kSameWords);
  const ProgramResult again = run_program(eval_line());
  EXPECT_THAT(again.err, HasSubstr("resuming with"));
  EXPECT_TRUE(std::filesystem::exists(results() + "/results.json")) << again.err;
}

TEST_F(CommandMetricProgram, ValidateRunsNoCommandButShowsIt) {
  write_suite("touch " + (root_ / "touched").string());
  const ProgramResult valid = run_here({"validate", (root_ / "suite.toml").string()});
  EXPECT_EQ(valid.exit_code, 0) << valid.err;
  EXPECT_THAT(valid.out, HasSubstr("task val runs the command: touch "));
  EXPECT_FALSE(std::filesystem::exists(root_ / "touched"));
}

TEST_F(CommandMetricProgram, ScoreAsksItToo) {
  write_text(root_ / "hyp", "5 6\n7\n");
  const std::vector<std::string> line{
      "score", "command", "--hyp", (root_ / "hyp").string(), "--ref", (root_ / "test.ref").string()};
  const auto score = [&](std::vector<std::string> more) {
    more.insert(more.begin(), line.begin(), line.end());
    return run_program(more);
  };
  const ProgramResult tsv = score({"--command", "awk -F'\\t' '{print $1 == $2}'", "--label", "same", "--json"});
  ASSERT_EQ(tsv.exit_code, 0) << tsv.err;
  EXPECT_DOUBLE_EQ(nlohmann::json::parse(tsv.out).at("same").get<double>(), 0.5);
  const ProgramResult jsonl = score({"--command", "grep -c '\"source\":\"9 11 7 1\"'; echo 0", "--input", "jsonl",
                                     "--source", (root_ / "test").string()});
  EXPECT_EQ(jsonl.exit_code, 0) << jsonl.err;
  EXPECT_THAT(jsonl.out, HasSubstr("grep|nrefs:1|command:grep"));
  EXPECT_THAT(score({}).err, HasSubstr("the metric needs a command"));
  EXPECT_EQ(score({}).exit_code, 2);
  const ProgramResult dead = score({"--command", "exit 9"});
  EXPECT_EQ(dead.exit_code, 1);
  EXPECT_THAT(dead.err, HasSubstr("exit code 9"));
  const ProgramResult other =
      run_program({"score", "bleu", "--command", "x", "--hyp", (root_ / "hyp").string(), "--ref", line.back()});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("only the metric command runs one"));
}

TEST_F(CommandMetricProgram, CtrlCEndsTheCommandWithTheProgram) {
  write_text(root_ / "hyp", "5 6\n7\n");
  const std::string noted = (root_ / "process").string();
  ProcessBeside scoring({draftsmith_binary(), "score", "command", "--hyp", (root_ / "hyp").string(), "--ref",
                         (root_ / "test.ref").string(), "--command",
                         "echo $$ > " + noted + ".new; mv " + noted + ".new " + noted + "; sleep 100"});
  for (int i = 0; i < 3000 && !std::filesystem::exists(noted); ++i) usleep(10'000);
  ASSERT_TRUE(std::filesystem::exists(noted));
  scoring.send(SIGINT);
  EXPECT_EQ(scoring.wait().exit_code, 130);
  const auto status = std::filesystem::path("/proc") / lines_of(read_file(noted)).front();
  EXPECT_FALSE(std::filesystem::exists(status)) << "the command's shell is gone";
}

}  // namespace
}  // namespace draftsmith::test
