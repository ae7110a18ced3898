// draftsmith prune as a user runs it: what it makes, how it explains itself, and what it refuses without a trace.
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "base/files.h"
#include "data/corpus/corpus.h"
#include "model/files/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/paths.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;
using test::ProgramResult;
using test::run_program;
using testing::AllOf;
using testing::HasSubstr;

// A Llama of 4 layers, 4 heads in 2 groups and 40 ids, without a tokenizer.
class PruneProgram : public testing::Test {
 protected:
  void SetUp() override {
    model::TransformerConfig config = model::tiny_llama(4);
    config.vocabulary = 40;
    config.width = 8;
    config.heads = 4;
    config.kv_heads = 2;
    config.ff_width = 12;
    config.max_positions = 32;
    config.eos = {2};
    config.bos = 1;
    model::save_model(folder_ / "model", model::TransformerModel(config, 1));
    write_corpus("corpus.h5", 20);
    write_corpus("empty.h5", 0);
  }

  void write_corpus(const std::string& name, int32_t examples) const {
    data::CorpusWriter writer(folder_ / name, {.tokenizer_hash = "t", .vocabulary = 40});
    for (int32_t i = 0; i < examples; ++i) writer.add({}, std::vector<int32_t>{5 + i % 7, 7, 30 + i % 3, 2});
    writer.finish();
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  ProgramResult prune(std::vector<std::string> flags) const {
    flags.insert(flags.begin(), {"prune", "--model", path("model"), "--out", path("out")});
    return run_program(flags);
  }

  TemporaryDirectory folder_;
};

TEST_F(PruneProgram, CutsLayersWidthAndVocabulary) {
  const ProgramResult result = prune({"--decoder-layers", "every:2", "--heads", "2", "--ff-width", "5", "--by",
                                      "activation", "--calibration", path("corpus.h5"), "--calibration-examples", "8",
                                      "--vocabulary-from", path("corpus.h5"), "--vocabulary-size", "12"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("2 of 4 layers, 2 of 4 heads and 5 of 12 neurons"),
                                HasSubstr("12 of 40 ids, which cover 97.50 % of the counted tokens")));
  const auto config = model::load_model(folder_ / "out")->config();
  EXPECT_EQ(config.kv_heads, 1);
  EXPECT_EQ(config.vocabulary_rows(), 12);
  EXPECT_THAT(run_program({"inspect", path("out")}).out, HasSubstr("12 of these ids (d2t, t2d)"));
  const ProgramResult ids = run_program({"generate", "--model", path("model"), "--drafter", path("out"), "--ids",
                                         "--max-new-tokens", "6", "--method", "assisted"},
                                        "5 7 39\n");
  const ProgramResult greedy = run_program(
      {"generate", "--model", path("model"), "--ids", "--max-new-tokens", "6", "--method", "greedy"}, "5 7 39\n");
  EXPECT_EQ(ids.exit_code, 0) << ids.err;
  EXPECT_EQ(ids.out, greedy.out);
}

TEST_F(PruneProgram, RefusesWhatCannotBeAndWritesNothing) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--heads", "3"}, "splits a group"},
      {{"--heads", "8"}, "at most 4"},
      {{"--ff-width", "13"}, "at most 12"},
      {{"--decoder-layers", "first:0"}, "rising list of layers in 0..3"},
      {{"--encoder-layers", "0"}, "has no encoder"},
      {{"--ff-width", "4", "--by", "activation"}, "calibration"},
      {{"--ff-width", "4", "--by", "size"}, "magnitude"},
      {{"--ff-width", "4", "--by", "activation", "--calibration", path("none.h5")}, "none.h5"},
      {{"--ff-width", "4", "--by", "activation", "--calibration", path("none.txt")}, "no tokenizer"},
      {{"--ff-width", "4", "--by", "activation", "--calibration", path("empty.h5")}, "no text to calibrate on"},
      {{"--vocabulary-from", path("empty.h5")}, "no tokens to count"},
      {{"--vocabulary-from", path("corpus.h5"), "--vocabulary-size", "41"}, "the model has fewer ids"},
      {{"--vocabulary-from", path("corpus.h5"), "--vocabulary-size", "1"}, "special tokens alone are more"},
      {{"--vocabulary-size", "12"}, "vocabulary_from"},
  };
  for (const auto& [flags, message] : cases) {
    const ProgramResult result = prune(flags);
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_FALSE(fs::exists(folder_ / "out")) << message;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 3) << "a temporary directory is left";
}

// What is known before text is read is said before: a corpus without text is not found out.
TEST_F(PruneProgram, RefusesBeforeItMeasures) {
  const std::vector<std::string> by_empty = {"--by", "activation", "--calibration", path("empty.h5")};
  const auto error_of = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), by_empty.begin(), by_empty.end());
    const ProgramResult result = prune(flags);
    EXPECT_EQ(result.exit_code, 2);
    return result.err;
  };
  EXPECT_THAT(error_of({"--heads", "3", "--decoder-layers", "9"}),
              AllOf(HasSubstr("splits a group"), HasSubstr("rising list of layers in 0..3")));
  EXPECT_THAT(error_of({"--heads", "2", "--vocabulary-from", path("empty.h5"), "--vocabulary-size", "1"}),
              HasSubstr("special tokens alone are more"));
  make_directories(folder_ / "out");
  write_file_atomic(folder_ / "out/mine.txt", "mine");
  EXPECT_THAT(error_of({"--heads", "2"}), HasSubstr("is not overwritten"));
}

TEST_F(PruneProgram, AskedToStopItEndsInOrder) {
  write_corpus("long.h5", 50'000);
  const std::string command = "bash -c '" + draftsmith::test::draftsmith_binary() + " prune --threads 1 --model " +
                              path("model") + " --out " + path("out") + " --heads 2 --by activation --calibration " +
                              path("long.h5") + " --calibration-examples 50000 2>" + path("err") +
                              " & pid=$!; while [ -e /proc/$pid ] && ! grep -q \"SigCgt:.*[4-7c-f]...$\" "
                              "/proc/$pid/status; do :; done; kill -TERM $pid; wait $pid'";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 128 + SIGTERM);
  EXPECT_THAT(read_file(folder_ / "err"), HasSubstr("nothing was written"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 5) << "a temporary directory is left";
}

TEST_F(PruneProgram, HelpTeachesWithExamples) {
  const std::string help = run_program({"prune", "--help"}).out;
  for (const char* part :
       {"--vocabulary-from", "--by activation --calibration", "every:3", "--vocabulary-size 16000"}) {
    EXPECT_THAT(help, HasSubstr(part));
  }
}

}  // namespace
}  // namespace draftsmith
