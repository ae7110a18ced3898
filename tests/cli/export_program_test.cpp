// draftsmith export as a user runs it.
#include <cmath>
#include <cstdlib>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/support/models.h"
#include "tests/support/paths.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class ExportProgram : public testing::Test {
 protected:
  ExportProgram() {
    model::TransformerConfig config = model::tiny_t5();
    config.output_scale = 1 / std::sqrt(static_cast<double>(config.width));  // the one that files can hold
    model::save_model(model_, model::TransformerModel(config, 3));
  }

  ProgramResult run_export(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"export", "--model", model_, "--out", out_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }

  const TemporaryDirectory folder_;
  const fs::path model_ = folder_ / "model";
  const fs::path out_ = folder_ / "out";
};

TEST_F(ExportProgram, WritesADirectoryThatIsWellFormed) {
  const ProgramResult done = run_export({"--target", model_, "--dtype", "bf16"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("parameters as BF16"));
  const ProgramResult verified = run_program({"verify", out_});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("no hashes to compare"));
}

TEST_F(ExportProgram, HelpTeachesWithExamples) {
  const ProgramResult help = run_program({"export", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("--format"), HasSubstr("Examples:"), HasSubstr("--speculative-config")));
}

TEST_F(ExportProgram, BadInputWritesNothingAndExitsWithTwo) {
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--format", "vllm"},
                                                {"--format", "onnx"},
                                                {"--dtype", "int8"},
                                                {"--target", folder_.path()},
                                                {"--dtype", "q8_0"},
                                                {"--shard-megabytes", "0"}}) {
    const ProgramResult refused = run_export(wrong);
    EXPECT_EQ(refused.exit_code, 2) << wrong.front() << refused.err;
    EXPECT_FALSE(fs::exists(out_)) << wrong.front();
  }
  EXPECT_EQ(run_program({"export", "--model", model_}).exit_code, 2);
}

// A server of llama.cpp reads files of its format alone.
class GgufExportProgram : public testing::Test {
 protected:
  GgufExportProgram() {
    make_directories(folder_ / "work/target");
    model::save_model(target_, *model::varied_model(model::tiny_llama(2), 5, at::kFloat));
    model::save_model(folder_ / "drafter", *model::varied_model(model::tiny_llama(1), 6, at::kFloat));
    make_directories(out_);
  }

  // Returns the commands that an export of the drafter prints.
  std::vector<std::string> commands(const std::string& file, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"export", "--model", folder_ / "drafter", "--format",
                                          "gguf",   "--out",   out_ / file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult done = run_program(arguments);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    std::istringstream lines(done.out.substr(std::min(done.out.size(), done.out.find("To serve"))));
    std::vector<std::string> found;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("  ")) found.push_back(line.substr(2));
    }
    return found;
  }

  std::string server(const std::string& target, const std::string& drafter) const {
    return "llama-server --model '" + target + "' --model-draft '" + (out_ / drafter).string() + "' --draft-max 5";
  }

  const TemporaryDirectory folder_;
  const fs::path target_ = folder_ / "work/target/model";
  const fs::path out_ = folder_ / "two words";
};

TEST_F(GgufExportProgram, TheServersCommandNamesAFileThatAnEarlierCommandMakes) {
  const auto first = commands("drafter.gguf", {"--target", target_});
  const fs::path file = out_ / "target.gguf";
  ASSERT_EQ(first.size(), 2);
  EXPECT_EQ(first[1], server(file, "drafter.gguf"));
  const std::string program = "draftsmith ";
  ASSERT_TRUE(first[0].starts_with(program)) << first[0];
  ASSERT_FALSE(fs::exists(file));
  EXPECT_EQ(std::system((draftsmith_binary() + first[0].substr(program.size() - 1) + " >/dev/null 2>&1").c_str()), 0);
  EXPECT_TRUE(fs::is_regular_file(file));
}

TEST_F(GgufExportProgram, TheTargetsFileIsNotTheDrafters) {
  const auto found = commands("target.gguf", {"--target", target_});
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[1], server(out_ / "target-target.gguf", "target.gguf"));
}

TEST_F(GgufExportProgram, WithoutATargetTheServersCommandLeavesItsPlace) {
  EXPECT_THAT(commands("drafter.gguf", {}), testing::ElementsAre(HasSubstr("--model TARGET.gguf --model-draft")));
}

// A file size limit fails writes as a full disk does.
TEST_F(ExportProgram, AWriteThatFailsLeavesNoDirectory) {
  const std::string command = "bash -c 'trap \"\" XFSZ; ulimit -f 8; exec " + draftsmith::test::draftsmith_binary() +
                              " export --model " + model_.string() + " --out " + out_.string() + "' 2>" +
                              (folder_ / "err").string();
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  EXPECT_THAT(read_file(folder_ / "err"), HasSubstr("writing failed after"));
  size_t entries = 0;
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    EXPECT_THAT(entry.path().filename().string(), testing::AnyOf("model", "err"));
    ++entries;
  }
  EXPECT_EQ(entries, 2);
}

}  // namespace
}  // namespace draftsmith::test
