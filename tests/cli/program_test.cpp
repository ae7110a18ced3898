// The command line as a whole: commands are found, errors are explained, exit codes say what happened.
#include "tests/cli/program.h"

#include <cstdlib>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/utf8.h"
#include "tests/support/files.h"
#include "tests/support/paths.h"

namespace draftsmith {
namespace {

using test::ProgramResult;
using test::run_program;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Program, HelpTeachesWithExamples) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{}, {"--help"}, {"help"}}) {
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out, HasSubstr("Examples:"));
    EXPECT_THAT(result.out, HasSubstr("Explain a command"));
    EXPECT_EQ(result.err, "");
  }
}

TEST(Program, HelpOfACommandIsItsOwn) {
  EXPECT_THAT(run_program({"help", "help"}).out, HasSubstr("draftsmith help options train"));
  EXPECT_EQ(run_program({"help", "help"}).out, run_program({"help", "--help"}).out);
}

TEST(Program, VersionNamesTheBuild) {
  const ProgramResult result = run_program({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, StartsWith("draftsmith "));
  EXPECT_THAT(result.out, HasSubstr("LibTorch 2."));
}

TEST(Program, UnknownCommandsAreAnsweredWithTheNearest) {
  const ProgramResult result = run_program({"hlep"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith("error: unknown command 'hlep'"));
  EXPECT_THAT(result.err, HasSubstr("did you mean 'help'?"));
  EXPECT_EQ(run_program({"help", "hlep"}).exit_code, 2);
}

TEST(Program, UnknownCommandsOfCommandsToo) {
  const ProgramResult result = run_program({"data", "prpare", "--nonsense"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, StartsWith("error: draftsmith data: unknown command 'prpare'"));
  EXPECT_THAT(result.err, HasSubstr("did you mean 'prepare'?"));
}

TEST(Program, HelpOfEveryFlagFitsAHundredColumns) {
  const std::string help = run_program({"data", "prepare", "--help"}).out;
  const size_t begin = help.find("Options:");
  ASSERT_NE(begin, std::string::npos);
  const std::string options = help.substr(begin, help.find("\n\n", begin) - begin);
  EXPECT_LE(widest_line(options), 100u) << options;
  EXPECT_GT(lines_of(options).size(), 20u);
}

TEST(Program, UnknownFlagsAreAnsweredWithTheNearest) {
  const ProgramResult result = run_program({"help", "--hepl"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("draftsmith help: unknown flag '--hepl'"));
  EXPECT_THAT(result.err, HasSubstr("did you mean '--help'?"));
}

TEST(Program, OptionsAreExplainedWithinAHundredColumns) {
  const ProgramResult result = run_program({"help", "options"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("device: string; default: \"auto\""));
  EXPECT_LE(widest_line(result.out), 100u) << result.out;

  EXPECT_THAT(run_program({"help", "options", "run"}).out, HasSubstr("threads: integer (threads), 0 to 1024"));
  const ProgramResult unknown = run_program({"help", "options", "rnu"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean run?"));
}

TEST(Program, ScoreKnowsTheMetricsThatScoreSomething) {
  const ProgramResult none = run_program({"score", "none", "--hyp", "none", "--ref", "none"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("one of bleu, rouge, chrf, command\n"));
  EXPECT_THAT(run_program({"score", "--help"}).out, HasSubstr("bleu, rouge, chrf, command\n"));
}

TEST(Program, OptionsOfDecodingAreExplained) {
  EXPECT_THAT(run_program({"help", "options", "decoding"}).out, HasSubstr("rollback_rule"));
}

// A suite whose files are all there, but for what `lines` add to it.
class SuiteFile : public testing::Test {
 protected:
  ProgramResult run(const std::string& command, const std::string& lines, const std::vector<std::string>& more = {}) {
    const std::string folder = folder_.path().string();
    write_file_atomic(folder_ / "text", "a\n");
    write_file_atomic(folder_ / "suite.toml", "model = '" + folder + "'\n[[drafter]]\nname = 'small'\nmodel = '" +
                                                  folder + "'\n[[task]]\nname = 'test'\nsource = '" + folder +
                                                  "/text'\nreferences = ['" + folder + "/text']\n" + lines);
    std::vector<std::string> arguments = {command, folder_ / "suite.toml"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }

  const TemporaryDirectory folder_;
};

TEST_F(SuiteFile, ValidateFindsWhatIsWrongWithRuns) {
  const std::string assisted = "[[run]]\nmethod = 'assisted'\n";
  EXPECT_EQ(run("validate", assisted + "drafter = ['small']\n").exit_code, 0);
  const ProgramResult lacking = run("validate", assisted);
  EXPECT_EQ(lacking.exit_code, 2);
  EXPECT_THAT(lacking.err, HasSubstr("a drafter, for method assisted"));
  EXPECT_THAT(run("validate", "[[run]]\nmethod = 'asisted'\n").err, HasSubstr("did you mean 'assisted'?"));
}

TEST_F(SuiteFile, MissingFilesAreErrorsOfValidateAndEval) {
  for (const char* command : {"validate", "eval"}) {
    const ProgramResult missing = run(command, "", {"--set", "test.source='no/such/file'"});
    EXPECT_EQ(missing.exit_code, 2) << command;
    EXPECT_THAT(missing.err, HasSubstr("no/such/file (not there)")) << command;
  }
}

TEST(Program, AFullStandardOutputIsAFailedRun) {
  const std::string command = draftsmith::test::draftsmith_binary() + " help options >/dev/full 2>/dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
}

}  // namespace
}  // namespace draftsmith
