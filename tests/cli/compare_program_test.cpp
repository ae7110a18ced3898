// `draftsmith compare` as a user runs it: tables, limits and exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "tests/cli/program.h"
#include "tests/evaluate/report/results_of_settings.h"

namespace draftsmith {
namespace {

using evaluate::made_setting;
using test::run_program;
using testing::AllOf;
using testing::HasSubstr;

class CompareProgram : public testing::Test {
 protected:
  void SetUp() override {
    write("first", 2.0, 30);
    write("second", 1.8, 29);
  }
  void write(const std::string& name, double speedup, double bleu) const {
    evaluate::Results results;
    results.suite = name;
    results.environment["threads"] = name == "first" ? 1 : 2;
    results.tasks = {evaluate::made_task({made_setting("bild.small", "bild", speedup, bleu, "small")})};
    make_directories(root_ / name);
    write_json(root_ / name / "results.json", to_json(results));
  }
  test::ProgramResult compare(const std::vector<std::string>& flags) const {
    std::vector<std::string> arguments{"compare", (root_ / "first").string(), (root_ / "second/results.json").string()};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return run_program(arguments);
  }

  const TemporaryDirectory root_;
};

TEST_F(CompareProgram, ShowsWhatChanged) {
  const auto result = compare({});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("30.00 → 29.00"), HasSubstr("2.00 → 1.80"), HasSubstr("-10.0 %*"),
                                HasSubstr("other environment: threads: 1 → 2")));
}

TEST_F(CompareProgram, ExitsWithOneBeyondTheLimits) {
  const auto slower = compare({"--fail-on-slower", "5%"});
  EXPECT_EQ(slower.exit_code, 1);
  EXPECT_THAT(slower.err, AllOf(HasSubstr("exceed the limits"), HasSubstr("captions, bild.small: slower by 10.0 %")));
  EXPECT_THAT(slower.out, HasSubstr("bild.small"));
  EXPECT_EQ(compare({"--fail-on-slower", "15%"}).exit_code, 0);
  EXPECT_THAT(compare({"--fail-on-worse", "0.5"}).err, HasSubstr("worse by 1.00 points"));
  EXPECT_EQ(compare({"--fail-on-worse", "1.5"}).exit_code, 0);
}

TEST_F(CompareProgram, ExitsWithTwoForBadInput) {
  EXPECT_THAT(compare({"--fail-on-slower", "0.05"}).err, HasSubstr("is no percentage such as 5%: 0.05"));
  EXPECT_EQ(compare({"--fail-on-slower", "0.05"}).exit_code, 2);
  const auto nothing = run_program({"compare", (root_ / "first").string(), root_.path().string()});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("there are no results"));
}

}  // namespace
}  // namespace draftsmith
