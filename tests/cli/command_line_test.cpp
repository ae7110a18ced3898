// The command line as a whole: commands and flags are found, help teaches, errors are explained, exit codes say what
// happened.
#include <cstdlib>

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <sys/wait.h>

#include "cli/application.h"
#include "tests/cli/program.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/paths.h"

namespace draftsmith::cli {
namespace {

using test::ProgramResult;
using test::run_here;
using test::run_program;
using testing::StartsWith;

TEST(CommandLine, TheProgramRunsAndNamesItsBuild) {
  const ProgramResult result = run_program({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(StartsWith("draftsmith "), HasSubstr("LibTorch 2.")));
  EXPECT_EQ(run_program({"hlep"}).exit_code, 2);
}

TEST(CommandLine, AFullStandardOutputIsAFailedRun) {
  const std::string command = test::draftsmith_binary() + " help options >/dev/full 2>/dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
}

TEST(CommandLine, UnknownWordsAreAnsweredWithTheNearest) {
  const auto error_of = [](const std::vector<std::string>& arguments) {
    return refusal_of(run_here(arguments), /*silent=*/true);
  };
  EXPECT_THAT(error_of({"hlep"}),
              AllOf(StartsWith("error: unknown command 'hlep'"), HasSubstr("did you mean 'help'?")));
  EXPECT_THAT(error_of({"help", "hlep"}), HasSubstr("'hlep'"));
  EXPECT_THAT(error_of({"help", "--hepl"}),
              AllOf(HasSubstr("draftsmith help: unknown flag '--hepl'"), HasSubstr("did you mean '--help'?")));
  EXPECT_THAT(error_of({"help", "options", "rnu"}), HasSubstr("did you mean run?"));
  EXPECT_THAT(error_of({"generate", "--modle", "m"}), HasSubstr("did you mean '--model'?"))
      << "although it is required";
  EXPECT_THAT(error_of({"score", "none", "--hyp", "none", "--ref", "none"}),
              HasSubstr("one of bleu, rouge, chrf, command\n"));
}

TEST(CommandLine, EmptyValuesTakeNoFlagsAndNanIsNoNumber) {
  const std::string told = refusal_of(run_here({"generate", "--temperature=", "--model=m", "--input=i"}));
  EXPECT_THAT(told, AllOf(HasSubstr("--temperature"), Not(HasSubstr("--model"))));
  EXPECT_THAT(refusal_of(run_here({"compare", "a", "b", "--fail-on-slower", "nan%"})), HasSubstr("from 0 to 100"));
  EXPECT_THAT(refusal_of(run_here({"compare", "a", "b", "--fail-on-worse=nan"})), HasSubstr("--fail-on-worse"));
  EXPECT_THAT(refusal_of(run_here({"new", "--target", "t", "--hours", "nan"})), HasSubstr("--hours"));
}

// Checks the help of `app`, whose name on the command line is `name`, and of its subcommands.
void check_help(const CLI::App& app, std::vector<std::string> name) {
  std::vector<std::string> command = name;
  command.emplace_back("--help");
  const std::string help = run_here(command).out;
  EXPECT_LE(widest_line(help), 100u) << help;
  EXPECT_THAT(help, testing::ContainsRegex("Examples?[ (:]"));
  name.emplace_back();
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    name.back() = sub->get_name();
    check_help(*sub, name);
  }
}

TEST(CommandLine, HelpOfEveryCommandFitsAHundredColumnsAndTeachesWithExamples) {
  CLI::App app("", "draftsmith");
  const auto actions = add_commands(app);
  check_help(app, {});
  EXPECT_THAT(run_here({}).out, HasSubstr("Explain a command"));
  EXPECT_EQ(run_here({"help"}).out, run_here({"--help"}).out);
  EXPECT_EQ(run_here({"help", "plan"}).out, run_here({"plan", "--help"}).out);
}

TEST(CommandLine, OptionsAreExplainedWithinAHundredColumns) {
  const std::string all = run_here({"help", "options"}).out;
  EXPECT_THAT(all, AllOf(HasSubstr("device: string; default: \"auto\""), HasSubstr("rollback_rule")));
  EXPECT_LE(widest_line(all), 100u) << all;
  EXPECT_THAT(run_here({"help", "options", "run"}).out, HasSubstr("threads: integer (threads), 0 to 1024"));
}

TEST(Guard, AFullGpuSaysWhatWasAskedAndWhatToLower) {
  testing::internal::CaptureStderr();
  const int code = guarded([]() -> int {
    throw c10::OutOfMemoryError({"file.cpp", "allocate", 1},
                                "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 7.00 GiB free. Of the "
                                "allocated memory 1 GiB is reserved. If reserved but unallocated memory is large try");
  });
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, AllOf(HasSubstr("error: the GPU's memory is full\n  found:    CUDA out of memory. Tried to "
                                    "allocate 20.00 GiB. GPU 0 has 7.00 GiB free.\n"),
                          HasSubstr("--batch-size")));
}

TEST(Guard, UnexpectedErrorsHaveAnExitCodeAndAText) {
  const auto expect = [](int code, const std::string& begin, const auto& error) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(guarded([&]() -> int { throw error; }), code) << begin;
    EXPECT_THAT(testing::internal::GetCapturedStderr(), StartsWith(begin));
  };
  expect(1, "error: LibTorch: odd", c10::Error({"file.cpp", "f", 1}, "odd"));
  expect(2, "error: filesystem error: a path", std::filesystem::filesystem_error("a path", std::error_code()));
  expect(1, "error: out of memory", std::bad_alloc());
  expect(1, "internal error: odd\n  hint:     this is a bug", std::logic_error("odd"));
  expect(1, "error: odd", std::runtime_error("odd"));
}

struct FlagOptions {
  int64_t max_draft = 10;
  double fallback = 0.5;
  std::string method = "greedy";
  bool stemmer = false;
  std::vector<int64_t> grid;
  std::optional<double> top_p;
  ExecutionOptions run;
  static Fields<FlagOptions> fields() {
    return Fields<FlagOptions>("draft")
        .add("max_draft", &FlagOptions::max_draft, Range{1, 64}, Unit{"tokens"}, "Longest draft.")
        .add("fallback", &FlagOptions::fallback, Range{0, 1}, "Threshold.")
        .add("method", &FlagOptions::method, Choices{"greedy", "bild"}, "Method.")
        .add("stemmer", &FlagOptions::stemmer, "Stem words.")
        .add("grid", &FlagOptions::grid, "Many values.")
        .add("top_p", &FlagOptions::top_p, Above{0}, Range{0, 1}, "Nucleus.")
        .add("run", &FlagOptions::run, "Run.");
  }
};

struct ParsedFlags {
  FlagOptions options;
  std::string errors;
  bool method_given = false;
};

ParsedFlags parsed(std::vector<std::string> arguments) {
  CLI::App app;
  const OptionFlags<FlagOptions> flags(app);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  ParsedFlags found{.options = {}, .errors = "", .method_given = flags.given("method")};
  found.errors = error_of([&] { found.options = flags.value(); });
  return found;
}

TEST(OptionFlags, ReadEveryKindOfField) {
  const auto [options, errors, given] = parsed({"--max-draft", "7", "--fallback=0.25", "--method", "bild", "--stemmer",
                                                "--grid", "1", "--grid", "2", "--top-p", "0.9"});
  EXPECT_EQ(errors, "no error");
  EXPECT_EQ(options.max_draft, 7);
  EXPECT_EQ(options.fallback, 0.25);
  EXPECT_EQ(options.method, "bild");
  EXPECT_TRUE(options.stemmer);
  EXPECT_EQ(options.grid, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(options.top_p, 0.9);
  EXPECT_TRUE(given);
  const ParsedFlags none = parsed({});
  EXPECT_EQ(none.options.max_draft, 10);
  EXPECT_EQ(none.options.top_p, std::nullopt);
  EXPECT_FALSE(none.method_given);
}

TEST(OptionFlags, ReportEveryWrongValueAtOnce) {
  EXPECT_THAT(
      parsed({"--max-draft", "65", "--fallback", "x", "--method", "blid", "--grid", "1.5"}).errors,
      AllOf(HasSubstr("--max-draft: the value is not allowed\n  expected: an integer, 1 to 64"),
            HasSubstr("--fallback: the value has the wrong type"), HasSubstr("--method: the value is not allowed"),
            HasSubstr("did you mean 'bild'?"), HasSubstr("--grid[0]")));
}

TEST(OptionFlags, HelpShowsMeaningUnitAndDefault) {
  CLI::App app;
  const OptionFlags<FlagOptions> flags(app, FlagOptions{}, {"fallback"});
  EXPECT_THAT(app.help(),
              AllOf(HasSubstr("--max-draft VALUE=10"), HasSubstr("Longest draft. Unit: tokens."),
                    HasSubstr("One of greedy, bild."), Not(HasSubstr("--fallback")), Not(HasSubstr("--run"))));
}

TEST(ExecutionFlags, AreCheckedBeforeAnythingBegins) {
  EXPECT_THROW(begin_execution({.threads = -1}), UserError);
  EXPECT_THROW(begin_execution({.device = "gpu"}), UserError);
}

}  // namespace
}  // namespace draftsmith::cli
