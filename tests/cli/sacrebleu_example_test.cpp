// The example of docs/reference/metrics.md as it is written there: sacreBLEU's TER and spBLEU by the metric command.
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/child_process.h"
#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/paths.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;

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

TEST_F(SacrebleuExample, TheTaskOfASuiteHasTheScoreOfItsOutputs) {
  const size_t begin = document_.find("[[task]]");
  std::string task = document_.substr(begin, document_.find("```", begin) - begin);
  task.insert(task.find("[task.metric]"), "ids = true\n");
  model::save_model(root_ / "target", model::TransformerModel(model::t5_config(), 1));
  model::save_model(root_ / "small", model::TransformerModel(model::t5_config(), 2));
  write_text(root_ / "test.en", "5 20 7 1\n6 19 9 1\n8 3 1\n");
  write_text(root_ / "test.de", "5 6\n7 8 9\n9\n");
  write_text(root_ / "suite.toml",
             "model = \"target\"\nrepetitions = 1\nmax_new_tokens = 8\nresamples = 10\nforced_lines = 0\nwarmup = 0\n"
             "dtype = \"fp64\"\n[[drafter]]\nname = \"small\"\nmodel = \"small\"\n" +
                 task + "[[run]]\nmethod = \"bild\"\ndrafter = [\"small\"]\nfallback = [0.9]\nrollback = [5]\n");
  const ShellResult evaluated = run("draftsmith eval suite.toml --out results --device cpu --threads 1");
  ASSERT_TRUE(fs::exists(root_ / "results/results.json")) << evaluated.errors;
  const auto found = load_json(root_ / "results/results.json").at("tasks").at(0);
  const nlohmann::json expected = scores_of("results/hyp/test.greedy.txt", "test.de");
  EXPECT_NEAR(found.at("baseline").at("quality").at("TER").get<double>(), expected.at("TER").get<double>(), 1e-9);
  EXPECT_EQ(found.at("command_metric").at("lower_is_better"), true);
}

}  // namespace
}  // namespace draftsmith::test
