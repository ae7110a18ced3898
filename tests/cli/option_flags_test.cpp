#include "cli/option_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/common_flags.h"

namespace draftsmith::cli {
namespace {

using testing::HasSubstr;

struct DraftOptions {
  int64_t max_draft = 10;
  double fallback = 0.5;
  std::string method = "greedy";
  bool stemmer = false;
  std::vector<int64_t> grid;
  std::optional<double> top_p;
  ExecutionOptions run;
  static Fields<DraftOptions> fields() {
    return Fields<DraftOptions>("draft")
        .add("max_draft", &DraftOptions::max_draft, Range{1, 64}, Unit{"tokens"}, "Longest draft.")
        .add("fallback", &DraftOptions::fallback, Range{0, 1}, "Threshold.")
        .add("method", &DraftOptions::method, Choices{"greedy", "bild"}, "Method.")
        .add("stemmer", &DraftOptions::stemmer, "Stem words.")
        .add("grid", &DraftOptions::grid, "Many values.")
        .add("top_p", &DraftOptions::top_p, Above{0}, Range{0, 1}, "Nucleus.")
        .add("run", &DraftOptions::run, "Run.");
  }
};

// The options after parsing `arguments`; `errors` receives the problems.
DraftOptions parsed(std::vector<std::string> arguments, std::string* errors = nullptr, bool* method_given = nullptr) {
  CLI::App app;
  const OptionFlags<DraftOptions> flags(app);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  Problems problems;
  const DraftOptions options = flags.value(problems);
  if (errors) {
    for (const Problem& problem : problems.list()) *errors += to_string(problem) + "\n";
  } else {
    problems.throw_if_any();
  }
  if (method_given) *method_given = flags.given("method");
  return options;
}

TEST(OptionFlags, ReadEveryKindOfField) {
  bool given = false;
  const DraftOptions options = parsed({"--max-draft", "7", "--fallback=0.25", "--method", "bild", "--stemmer", "--grid",
                                       "1", "--grid", "2", "--top-p", "0.9"},
                                      nullptr, &given);
  EXPECT_EQ(options.max_draft, 7);
  EXPECT_EQ(options.fallback, 0.25);
  EXPECT_EQ(options.method, "bild");
  EXPECT_TRUE(options.stemmer);
  EXPECT_EQ(options.grid, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(options.top_p, 0.9);
  EXPECT_TRUE(given);
}

TEST(OptionFlags, KeepDefaultsWhereNothingWasGiven) {
  bool given = true;
  const DraftOptions options = parsed({}, nullptr, &given);
  EXPECT_EQ(options.max_draft, 10);
  EXPECT_FALSE(options.stemmer);
  EXPECT_EQ(options.top_p, std::nullopt);
  EXPECT_FALSE(given);
}

TEST(OptionFlags, ReportEveryWrongValueAtOnce) {
  std::string errors;
  parsed({"--max-draft", "65", "--fallback", "x", "--method", "blid", "--grid", "1.5"}, &errors);
  EXPECT_THAT(errors, HasSubstr("--max-draft: the value is not allowed\n  expected: an integer, 1 to 64"));
  EXPECT_THAT(errors, HasSubstr("--fallback: the value has the wrong type"));
  EXPECT_THAT(errors, HasSubstr("--method: the value is not allowed"));
  EXPECT_THAT(errors, HasSubstr("did you mean 'bild'?"));
  EXPECT_THAT(errors, HasSubstr("--grid[0]"));
}

TEST(OptionFlags, HelpShowsMeaningUnitAndDefault) {
  CLI::App app;
  const OptionFlags<DraftOptions> flags(app, DraftOptions{}, {"fallback"});
  EXPECT_THAT(app.help(), HasSubstr("--max-draft VALUE=10"));
  EXPECT_THAT(app.help(), HasSubstr("Longest draft. Unit: tokens."));
  EXPECT_THAT(app.help(), HasSubstr("greedy|bild"));
  EXPECT_THAT(app.help(), Not(HasSubstr("--fallback")));
  EXPECT_THAT(app.help(), Not(HasSubstr("--run")));
}

TEST(CommonFlags, ExecutionOptionsAreCheckedBeforeAnythingBegins) {
  ExecutionOptions execution;
  execution.threads = -1;
  EXPECT_THROW(begin_execution(execution), UserError);
  execution = {};
  execution.device = "gpu";
  EXPECT_THROW(begin_execution(execution), UserError);
}

}  // namespace
}  // namespace draftsmith::cli
