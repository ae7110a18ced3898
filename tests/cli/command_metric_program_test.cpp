// The metric "command" as a user meets it: suites that a script scores, scripts that die or answer wrongly, and the
// example of docs/reference/metrics.md as it is written there.
#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "base/child_process.h"
#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/paths.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;

class CommandMetricProgram : public testing::Test {
 protected:
  void SetUp() override {
    model::save_model(root_ / "target", model::TransformerModel(model::t5_config(), 1));
    model::save_model(root_ / "small", model::TransformerModel(model::t5_config(), 2));
    for (const char* task : {"val", "test"}) {
      write_text(root_ / task, task == std::string("val") ? "5 20 7 1\n6 19 9 1\n8 3 1\n" : "9 11 7 1\n6 4 9 1\n");
      write_text(root_ / (task + std::string(".ref")), task == std::string("val") ? "5 6\n7 8\n9\n" : "5 6\n7 8\n");
    }
    write_text(root_ / "score.sh", "awk -F'\\t' '{print ($1 == $2) ? 1 : length($1) / 1000}'\n");
    write_suite("sh " + (root_ / "score.sh").string());
  }
  void write_suite(const std::string& command) const {
    std::string suite = fmt::format(
        "model = \"{0}/target\"\nrepetitions = 1\nmax_new_tokens = 8\nresamples = 10\nforced_lines = 0\nwarmup = 0\n"
        "dtype = \"fp64\"\n[[drafter]]\nname = \"small\"\nmodel = \"{0}/small\"\n",
        root_.path().string());
    for (const char* task : {"val", "test"}) {
      suite += fmt::format(
          "[[task]]\nname = \"{1}\"\nsource = \"{0}/{1}\"\nreferences = [\"{0}/{1}.ref\"]\nids = true\n"
          "metric = {{ command = \"{2}\", label = \"words\", point = 0.01 }}\n",
          root_.path().string(), task, command);
    }
    write_text(root_ / "suite.toml", suite +
                                         "[[run]]\nmethod = \"bild\"\ndrafter = [\"small\"]\nrollback = [5]\n"
                                         "fallback = [0.0, 0.9]\nchoose_on = \"val\"\nmax_drop = [1000]\n");
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

TEST_F(CommandMetricProgram, ValidateRunsNoCommandButShowsIt) {
  write_suite("touch " + (root_ / "touched").string());
  const ProgramResult valid = run_here({"validate", (root_ / "suite.toml").string()});
  EXPECT_EQ(valid.exit_code, 0) << valid.err;
  EXPECT_THAT(valid.out, HasSubstr("task val runs the command: touch "));
  const std::string stage = replace_all(read_file(root_ / "suite.toml"), "[[", "[[s.");
  write_text(root_ / "recipe.toml", "[s]\nkind = \"evaluate\"\n" + stage);
  EXPECT_THAT(run_here({"validate", (root_ / "recipe.toml").string()}).out,
              HasSubstr("stage s, task val runs the command: touch "));
  EXPECT_FALSE(std::filesystem::exists(root_ / "touched"));
}

TEST_F(CommandMetricProgram, ScoreAsksItToo) {
  write_text(root_ / "hyp", "5 6\n7\n");
  const std::vector<std::string> line{
      "score", "command", "--hyp", (root_ / "hyp").string(), "--ref", (root_ / "test.ref").string()};
  const auto score = [&](const std::vector<std::string>& more) { return run_program(joined(line, more)); };
  const ProgramResult tsv = score({"--command", "awk -F'\\t' '{print $1 == $2}'", "--label", "same", "--json"});
  ASSERT_EQ(tsv.exit_code, 0) << tsv.err;
  EXPECT_DOUBLE_EQ(nlohmann::json::parse(tsv.out).at("same").get<double>(), 0.5);
  const ProgramResult jsonl = score({"--command", "grep -c '\"source\":\"9 11 7 1\"'; echo 0", "--input", "jsonl",
                                     "--source", (root_ / "test").string()});
  EXPECT_EQ(jsonl.exit_code, 0) << jsonl.err;
  EXPECT_THAT(jsonl.out, HasSubstr("grep|nrefs:1|command:grep"));
  EXPECT_THAT(refusal_of(score({})), HasSubstr("the metric needs a command"));
  const ProgramResult dead = score({"--command", "exit 9"});
  EXPECT_EQ(dead.exit_code, 1);
  EXPECT_THAT(dead.err, HasSubstr("exit code 9"));
  const std::vector<std::string> other{"score", "bleu", "--command", "x", "--hyp", root_ / "hyp", "--ref", line.back()};
  EXPECT_THAT(refusal_of(run_program(other)), HasSubstr("only the metric command runs one"));
  const std::vector<std::string> stems{"score", "rouge", "--stemmer", "--hyp", line.back(), "--ref", line.back()};
  EXPECT_EQ(run_program(stems).exit_code, 0);
  const auto bleu = [&](const std::string& hypotheses, const std::vector<std::string>& more = {}) {
    write_text(root_ / "hyp", hypotheses);
    return run_here(joined({"score", "bleu", "--hyp", root_ / "hyp", "--ref", line.back()}, more));
  };
  EXPECT_THAT(refusal_of(bleu("5 6\n")), HasSubstr("differ in their number of lines\n  expected: 1 lines"));
  EXPECT_THAT(refusal_of(bleu("")), HasSubstr("there is nothing to score"));
  const ProgramResult paired = bleu("5 6\n7\n", {"--paired", line.back()});
  EXPECT_THAT(paired.out, HasSubstr("paired bootstrap")) << paired.err;
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

constexpr const char* kHypotheses =
    "a house stands behind the old trees\nthe dog \"sleeps\" , and the cat runs\nEine Frau kauft Brot .\n\n"
    "über die Brücke gehen wir heute abend nach Hause\n5\tsheep & 3.5 goats\nthe end\n";
constexpr const char* kReferences =
    "behind the old trees stands a house\nthe dog sleeps, and a cat runs away\neine Frau kauft frisches Brot.\nwords\n"
    "heute abend gehen wir über die Brücke nach Hause\n5 sheep and 3.5 goats\nthe end\n";

// Puts a small SentencePiece model where sacreBLEU keeps that of FLORES-200.
constexpr const char* kPieces = R"(
import os, sentencepiece
os.makedirs(os.environ["SACREBLEU"] + "/models")
prefix = os.environ["SACREBLEU"] + "/models/flores200sacrebleuspm"
sentencepiece.SentencePieceTrainer.train(
    input="out.en,ref.en", model_prefix=prefix, vocab_size=80, hard_vocab_limit=False, minloglevel=2)
os.rename(prefix + ".model", prefix)
)";

// Prints sacreBLEU's own scores of two files.
constexpr const char* kScores = R"(
import json, sys
from sacrebleu.metrics import BLEU, TER
hypotheses, references = (
    [line.rstrip("\n") for line in open(file, encoding="utf-8", newline="\n")] for file in sys.argv[1:])
print(json.dumps({"TER": TER().corpus_score(hypotheses, [references]).score,
                  "spBLEU": BLEU(tokenize="flores200").corpus_score(hypotheses, [references]).score}))
)";

// A directory in which the document's commands run: with docs/, and with draftsmith and python3 in bin/.
class SacrebleuExample : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(peers_python())) GTEST_SKIP() << "no Python at " << peers_python() << " (DRAFTSMITH_PEERS_PYTHON)";
    fs::create_directory(root_ / "bin");
    write_program("draftsmith", draftsmith_binary());
    write_program("python3", peers_python().string());
    fs::create_directory_symlink(source_dir() / "docs", root_ / "docs");
    if (!run("python3 -c 'import sacrebleu, sentencepiece'").succeeded()) {
      GTEST_SKIP() << "no sacrebleu and sentencepiece in " << peers_python();
    }
    write_text(root_ / "out.en", kHypotheses);
    write_text(root_ / "ref.en", kReferences);
    write_text(root_ / "pieces.py", kPieces);
    write_text(root_ / "scores.py", kScores);
    const ShellResult pieces = run("python3 pieces.py");
    ASSERT_TRUE(pieces.succeeded()) << pieces.errors;
    document_ = read_file(source_dir() / "docs/reference/metrics.md");
  }

  ShellResult run(const std::string& command) const {
    return run_shell(
        fmt::format("cd {} && export PATH=\"$PWD/bin:$PATH\" SACREBLEU=\"$PWD/sacrebleu\" REF=ref.en && {}",
                    shell_word(root_.path().string()), command),
        "");
  }
  // Returns sacreBLEU's scores by the labels of the document.
  nlohmann::json scores_of(const std::string& hypotheses, const std::string& references) const {
    const ShellResult result = run(fmt::format("python3 scores.py {} {}", hypotheses, references));
    if (!result.succeeded()) throw std::runtime_error(result.errors);
    return nlohmann::json::parse(result.output);
  }

  const TemporaryDirectory root_;
  std::string document_;

 private:
  void write_program(const std::string& name, const std::string& program) const {
    const fs::path file =
        write_text(root_ / "bin" / name, fmt::format("#!/bin/sh\nexec {} \"$@\"\n", shell_word(program)));
    fs::permissions(file, fs::perms::owner_all);
  }
};

TEST_F(SacrebleuExample, CommandsGiveTheScoresOfCorpora) {
  const nlohmann::json expected = scores_of("out.en", "ref.en");
  std::string text = document_;
  for (size_t at = text.find("\\\n"); at != std::string::npos; at = text.find("\\\n")) text.erase(at, 2);
  std::vector<std::string> commands = lines_of(text);
  std::erase_if(commands, [](const std::string& line) { return !line.starts_with("$ draftsmith score command"); });
  ASSERT_EQ(commands.size(), 2U);
  for (const std::string& command : commands) {
    const ShellResult result = run(command.substr(2) + " --json");
    ASSERT_TRUE(result.succeeded()) << command << "\n" << result.errors;
    const auto score = nlohmann::json::parse(result.output);
    const std::string label = score.contains("TER") ? "TER" : "spBLEU";
    EXPECT_NEAR(score.at(label).get<double>(), expected.at(label).get<double>(), 1e-9);
    EXPECT_LT(score.at(label + "_ci95").at(0).get<double>(), score.at(label).get<double>());
    EXPECT_GT(score.at(label + "_ci95").at(1).get<double>(), score.at(label).get<double>());
  }
}

}  // namespace
}  // namespace draftsmith::test
