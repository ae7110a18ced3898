// Commands that write models, as a user runs them: `prune`, `export`.
#include <cmath>
#include <cstdlib>

#include <gmock/gmock.h>
#include <sys/wait.h>

#include "base/files.h"
#include "data/corpus/corpus.h"
#include "model/files/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/paths.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;

class ModelFiles : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  int64_t entries() const { return std::distance(fs::directory_iterator(folder_.path()), {}); }

  const TemporaryDirectory folder_;
};

// A Llama of 4 layers, 4 heads in 2 groups and 40 ids, without a tokenizer.
class PruneProgram : public ModelFiles {
 protected:
  PruneProgram() {
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

  // Returns the error of flags that must not lead to a model.
  std::string error(const std::vector<std::string>& flags) const {
    return refusal_of(run_here(joined({"prune", "--model", path("model"), "--out", path("out")}, flags)));
  }
};

TEST_F(PruneProgram, CutsLayersWidthAndVocabulary) {
  const ProgramResult result =
      run_program({"prune", "--model", path("model"), "--out", path("out"), "--decoder-layers=every:2", "--ff-width=5",
                   "--vocabulary-size=12", "--vocabulary-from", path("corpus.h5")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("2 of 4 layers, 5 of 12 neurons"),
                                HasSubstr("12 of 40 ids, which cover 97.50 % of the counted tokens")));
  EXPECT_EQ(model::load_model(folder_ / "out")->config().vocabulary_rows(), 12);
  EXPECT_THAT(run_here({"inspect", path("out")}).out, HasSubstr("12 of these ids (d2t, t2d)"));
  const std::vector<std::string> greedy = {"generate", "--model", path("model"), "--ids", "--max-new-tokens", "6"};
  const std::vector<std::string> assisted = joined(greedy, {"--drafter", path("out"), "--method", "assisted"});
  EXPECT_EQ(run_program(assisted, "5 7 39\n").out, run_program(greedy, "5 7 39\n").out);
}

// What is known before text is read is said before: a corpus without text is not found out.
TEST_F(PruneProgram, RefusesWhatCannotBeAndWritesNothing) {
  EXPECT_THAT(error({"--vocabulary-from", path("empty.h5"), "--ff-width", "13", "--decoder-layers", "9"}),
              AllOf(HasSubstr("has fewer neurons"), HasSubstr("rising list of layers in 0..3")));
  EXPECT_THAT(error({"--encoder-layers", "0"}), HasSubstr("has no encoder"));
  EXPECT_THAT(error({"--vocabulary-from", path("empty.h5")}), HasSubstr("no tokens to count"));
  EXPECT_THAT(error({"--vocabulary-from", path("corpus.h5"), "--vocabulary-size", "1"}),
              HasSubstr("special tokens alone are more"));
  EXPECT_THAT(error({"--vocabulary-size", "12"}), HasSubstr("vocabulary_from"));
  EXPECT_EQ(entries(), 3) << "a temporary directory is left";
  make_directories(folder_ / "out");
  write_file_atomic(folder_ / "out/mine.txt", "mine");
  EXPECT_THAT(error({"--ff-width", "5"}), HasSubstr("is not overwritten"));
}

class ExportProgram : public ModelFiles {
 protected:
  ExportProgram() {
    model::TransformerConfig config = model::tiny_t5();
    config.output_scale = 1 / std::sqrt(static_cast<double>(config.width));  // the one that files can hold
    model::save_model(folder_ / "model", model::TransformerModel(config, 3));
  }

  ProgramResult run_export(const std::vector<std::string>& more) const {
    return run_here(joined({"export", "--model", path("model"), "--out", path("out")}, more));
  }
};

TEST_F(ExportProgram, WritesADirectoryThatIsWellFormedOrNothing) {
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--format", "vllm"},
                                                {"--format", "onnx"},
                                                {"--target", folder_.path()},
                                                {"--dtype", "q8_0"},
                                                {"--shard-megabytes", "0"}}) {
    EXPECT_EQ(run_export(wrong).exit_code, 2) << wrong.front();
    EXPECT_FALSE(fs::exists(folder_ / "out")) << wrong.front();
  }
  const ProgramResult done = run_export({"--target", path("model"), "--dtype", "bf16"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("parameters as BF16"));
  EXPECT_THAT(run_here({"verify", path("out")}).out, HasSubstr("no hashes to compare"));
}

// A file size limit fails writes as a full disk does.
TEST_F(ExportProgram, AWriteThatFailsLeavesNoDirectory) {
  const std::string command = "bash -c 'trap \"\" XFSZ; ulimit -f 8; exec " + draftsmith_binary() + " export --model " +
                              path("model") + " --out " + path("out") + "' 2>" + path("err");
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  EXPECT_THAT(read_file(folder_ / "err"), HasSubstr("writing failed after"));
  EXPECT_EQ(entries(), 2) << "only model and err";
}

}  // namespace
}  // namespace draftsmith::test
