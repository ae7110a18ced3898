// `draftsmith plan`: the papers' numbers come out, tables fit, errors are the user's.
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "tests/cli/program.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith {
namespace {

using nlohmann::json;
using test::ProgramResult;
using test::run_program;
using testing::HasSubstr;

std::string output_of(const std::vector<std::string>& arguments) {
  const ProgramResult result = run_program(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return result.out;
}

void expect_fits(const std::string& text) {
  EXPECT_LE(widest_line(text), 100u) << text;
}

TEST(Plan, SpeculativeMarksTheBestWindow) {
  const std::string text = output_of({"plan", "speculative", "--alpha", "0.8", "--cost-ratio", "0.05"});
  expect_fits(text);
  EXPECT_THAT(text, HasSubstr("Best window 8: 3.09 times as fast as the target alone (alpha 0.8, cost ratio 0.05)."));
  const std::string none = output_of({"plan", "speculative", "--alpha", "0.3", "--cost-ratio", "0.5"});
  EXPECT_THAT(none, HasSubstr("No window is faster than the target alone"));
}

TEST(Plan, SpeculativeGivesTheTableOfThePaper) {
  const json plans =
      json::parse(output_of({"plan", "speculative", "--alpha", "0.6,0.9", "--cost-ratio", "0", "--json"}));
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_NEAR(plans[0]["windows"][2]["speedup"].get<double>(), 1.96, 0.005);
  EXPECT_NEAR(plans[0]["windows"][2]["operations"].get<double>(), 1.53, 0.005);
  EXPECT_NEAR(plans[1]["windows"][10]["speedup"].get<double>(), 6.86, 0.005);
  EXPECT_EQ(plans[1]["windows"][0]["speedup"], 1.0);
}

TEST(Plan, SeveralRatesGiveATableOfBestWindows) {
  const std::string text = output_of({"plan", "speculative"});
  expect_fits(text);
  EXPECT_THAT(text, HasSubstr("c = 0.05"));
  const json flat = json::parse(output_of({"plan", "speculative", "--alpha", "0.8", "--cost-ratio", "0.05", "--json"}));
  const json rising = json::parse(output_of(
      {"plan", "speculative", "--alpha", "0.8", "--cost-ratio", "0.05", "--target-curve", "20,22,24,26", "--json"}));
  EXPECT_LT(rising[0]["best_window"], flat[0]["best_window"]);
}

TEST(Plan, SpecGameListsEveryMethodAndK) {
  const std::vector<std::string> command = {"plan",       "specgame", "--acceptance", "0.8", "--agreement", "0.9",
                                            "--draft-ms", "0",        "--target-ms",  "10"};
  expect_fits(output_of(command));
  std::vector<std::string> with_json = command;
  with_json.emplace_back("--json");
  const json rows = json::parse(output_of(with_json));
  ASSERT_EQ(rows.size(), 15u);  // ArD, SpS and AsG for K = 1..7
  EXPECT_EQ(rows[0]["method"], "ArD");
  EXPECT_EQ(rows[0]["e_pt_ms"], 10.0);
  EXPECT_EQ(rows[5]["draft_tokens"], 5);
  EXPECT_NEAR(rows[5]["speedup"].get<double>(), 3.69, 0.005);  // methods.md, P = .8, K = 5
  EXPECT_NEAR(10 / rows[5]["e_pt_ms"].get<double>(), 2.39, 0.005);
  EXPECT_EQ(rows[14]["method"], "AsG");
}

// Measurements scatter: a longer step may come out faster.
TEST(Plan, ACurveThatFallsPromisesNothingBeyondItsEnd) {
  const json plans = json::parse(
      output_of({"plan", "speculative", "--alpha", "0.8", "--cost-ratio", "0.05", "--target-curve", "10,9", "--json"}));
  EXPECT_LT(plans[0]["best_window"], 20);
  EXPECT_LT(plans[0]["best_speedup"], 5.0);  // 1 / (1 - .8) tokens a run
  output_of(
      {"plan", "specgame", "--acceptance", "0.8", "--draft-ms", "0.1", "--target-ms", "10,9", "--max-tokens", "64"});
}

TEST(Plan, PpdGivesTheTradeOffOfThePaper) {
  const std::vector<std::string> command = {"plan",    "ppd",      "--layers", "40",
                                            "--match", "5:0.7415", "--tokens", "1000000"};
  expect_fits(output_of(command));
  std::vector<std::string> with_json = command;
  with_json.emplace_back("--json");
  const json rows = json::parse(output_of(with_json));
  EXPECT_NEAR(rows[0]["long_run_speedup"].get<double>(), 1 / 0.629, 0.002);
  EXPECT_NEAR(rows[0]["units_in_use"].get<double>(), 4.973, 0.001);
}

TEST(Plan, ExplainsWhatIsWrong) {
  const auto error_of = [](const std::vector<std::string>& arguments) {
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(error_of({"plan", "speculative", "--alpha", "1.2"}), HasSubstr("--alpha"));
  for (const char* flag : {"--alpha", "--cost-ratio", "--target-curve", "--operations-ratio"}) {
    EXPECT_THAT(error_of({"plan", "speculative", flag, "nan"}), HasSubstr("'nan' is not a number")) << flag;
  }
  const std::vector<std::string> specgame = {"plan",        "specgame", "--draft-ms",   "1",
                                             "--target-ms", "9",        "--acceptance", "0.5"};
  for (const size_t value : {3u, 5u, 7u}) {
    std::vector<std::string> wrong = specgame;
    wrong[value] = "nan";
    EXPECT_THAT(error_of(wrong), HasSubstr("'nan' is not a number")) << wrong[value - 1];
  }
  EXPECT_THAT(error_of({"plan", "ppd", "--layers", "40", "--match", "3"}), HasSubstr("K:RATE"));
  EXPECT_THAT(error_of({"plan", "ppd", "--layers", "40", "--match", "3:nan"}), HasSubstr("K:RATE"));
  EXPECT_THAT(error_of({"plan", "ppd", "--layers", "40", "--early-layer", "12", "--match", "3:0.5"}),
              HasSubstr("expected: 20 to 40"));
  EXPECT_THAT(error_of({"plan", "spekulative"}), HasSubstr("did you mean 'speculative'?"));
}

TEST(Plan, HelpTeachesWithExamples) {
  for (const char* command : {"speculative", "specgame", "ppd"}) {
    const std::string help = output_of({"plan", command, "--help"});
    expect_fits(help);
    EXPECT_THAT(help, HasSubstr("Example"));
    EXPECT_THAT(help, HasSubstr(std::string("draftsmith plan ") + command));
  }
  EXPECT_THAT(output_of({"plan", "--help"}), HasSubstr("draftsmith plan ppd --layers 40"));
}

}  // namespace
}  // namespace draftsmith
