// `draftsmith plan`: measured steps give an answer, tables fit, errors are the user's.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"
#include "tests/support/models.h"

namespace draftsmith {
namespace {

using nlohmann::json;
using test::ProgramResult;
using test::run_here;
using testing::AllOf;
using testing::HasSubstr;

std::string plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "plan");
  const ProgramResult result = run_here(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_LE(widest_line(result.out), 100u) << result.out;
  return result.out;
}

json plan_json(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  return json::parse(plan(arguments));
}

std::string plan_error(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "plan");
  return refusal_of(run_here(arguments), /*silent=*/true);
}

TEST(Plan, ExplainsWhatIsWrong) {
  EXPECT_THAT(plan_error({"--drafter", "lookup"}), HasSubstr("--model"));
  EXPECT_THAT(plan_error({"--model", "none"}), HasSubstr("none"));
  EXPECT_THAT(plan_error({"--model", "none", "--drafter", "lookup", "--alpha", "nan"}), HasSubstr("'nan' is not a"));
}

// Targets of both kinds, and a smaller model.
class MeasuredPlan : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    model::TransformerConfig t5 = model::tiny_t5();
    t5.output_scale = 1 / std::sqrt(static_cast<double>(t5.width));  // the only one that files can hold
    model::save_model(*folder_ / "t5", model::TransformerModel(t5, 3));
    model::save_model(*folder_ / "llama", model::TransformerModel(model::tiny_llama(3), 3));
    model::TransformerConfig small = model::tiny_llama(1);
    model::save_model(*folder_ / "small", model::TransformerModel(small, 3));
    small.max_positions = 8;
    model::save_model(*folder_ / "short", model::TransformerModel(small, 3));
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string path(const std::string& name) { return (*folder_ / name).string(); }
  static std::vector<std::string> measured(const std::string& model, const std::string& drafter,
                                           const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--model", path(model), "--drafter", drafter,  "--length",
                                    "6",       "--device",  "cpu",       "--quiet"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  static std::unique_ptr<TemporaryDirectory> folder_;
};
std::unique_ptr<TemporaryDirectory> MeasuredPlan::folder_;

TEST_F(MeasuredPlan, AnswersForEveryKindOfDrafter) {
  for (const auto& [model, drafter] : std::vector<std::pair<std::string, std::string>>{
           {"llama", path("small")}, {"llama", "lookup"}, {"llama", "exit:1"}, {"t5", path("t5")}}) {
    const json answer = plan_json(measured(model, drafter, {"--max-window", "3", "--alpha", "0.8"}));
    ASSERT_EQ(answer["target_seconds"].size(), 4u) << drafter;
    EXPECT_EQ(answer["drafting_seconds"].size(), 3u) << drafter;
    const double one = answer["target_seconds"][0];
    const double round = answer["drafting_seconds"][1].get<double>() + answer["target_seconds"][2].get<double>();
    const json windows = answer["plans"][0]["windows"];
    EXPECT_NEAR(windows[2]["speedup"].get<double>(), (1 + 0.8 + 0.64) * one / round, 1e-9) << drafter;
    const json even = answer["break_even_alpha"];
    const bool pays = !even.is_null() && even.get<double>() < 0.8;
    EXPECT_EQ(answer["plans"][0]["best_window"].get<int64_t>() > 0, pays) << drafter;
  }
}

TEST_F(MeasuredPlan, WindowsEndWhereTheDraftersPositionsDo) {
  for (const auto& [length, most] : std::vector<std::pair<std::string, size_t>>{{"6", 2}, {"20", 0}}) {
    std::vector<std::string> arguments = measured("llama", path("short"), {"--max-window", "4", "--json"});
    arguments.insert(arguments.begin(), "plan");
    *std::ranges::find(arguments, "6") = length;
    const ProgramResult result = run_here(arguments);
    EXPECT_THAT(result.err, HasSubstr("has 8 positions"));
    const json answer = json::parse(result.out);
    EXPECT_EQ(answer["plans"][0]["windows"].size(), most + 1);
    EXPECT_TRUE(most > 0 || answer["break_even_alpha"].is_null());
    EXPECT_EQ(answer["cost_ratio"].is_null(), most == 0);
  }
}

TEST_F(MeasuredPlan, PrintsTimesAndTheAnswer) {
  const std::string text =
      plan(measured("llama", path("small"), {"--batch", "2", "--dtype", "bf16", "--threads", "1"}));
  EXPECT_THAT(text, AllOf(HasSubstr("bf16, batch 2, after 6 tokens"), HasSubstr("1 thread"), HasSubstr("The drafter "),
                          HasSubstr("0.95")));
}

TEST_F(MeasuredPlan, RefusesWhatDoesNotFitBeforeItMeasures) {
  EXPECT_THAT(plan_error(measured("none", "lookup", {})), HasSubstr("none"));
  EXPECT_THAT(plan_error({"--model", path("llama"), "--device", "cpu"}), HasSubstr("tokenizer"));
  EXPECT_THAT(plan_error(measured("llama", path("small"), {"--dtype", "int4"})), HasSubstr("or int8"));
  EXPECT_THAT(plan_error(measured("llama", path("t5"), {})), HasSubstr("different kinds"));
  EXPECT_THAT(plan_error(measured("llama", "exit:9", {})), HasSubstr("from 1 to 3"));
  EXPECT_THAT(plan_error(measured("llama", "lookup", {"--batch", "2"})), HasSubstr("measured for one row"));
  EXPECT_THAT(plan_error(measured("llama", path("small"), {"--max-window", "64"})),
              AllOf(HasSubstr("less than 64 together"), HasSubstr("6 + 64")));
}

}  // namespace
}  // namespace draftsmith
