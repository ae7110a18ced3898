// `draftsmith plan`: measured steps give an answer, tables fit, errors are the user's.
#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"
#include "tests/support/models.h"

namespace draftsmith {
namespace {

using test::joined;
using test::ProgramResult;
using test::run_here;

std::string plan(const std::vector<std::string>& arguments) {
  const ProgramResult result = run_here(joined({"plan"}, arguments));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_LE(widest_line(result.out), 100u) << result.out;
  return result.out;
}

// Returns the windows of the printed table of times.
int64_t timed_windows(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  return std::ranges::count_if(lines, [](const std::string& line) {
    std::istringstream row(line);
    double window = 0, drafting = 0, verifying = 0, ratio = 0;
    return static_cast<bool>(row >> window >> drafting >> verifying >> ratio);
  });
}

std::string plan_error(const std::vector<std::string>& arguments) {
  return refusal_of(run_here(joined({"plan"}, arguments)), /*silent=*/true);
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
    return joined({"--model", path(model), "--drafter", drafter, "--length", "6", "--device", "cpu", "--quiet"}, more);
  }

  static inline std::unique_ptr<TemporaryDirectory> folder_;
};

TEST_F(MeasuredPlan, AnswersForEveryKindOfDrafter) {
  for (const auto& [model, drafter] : std::vector<std::pair<std::string, std::string>>{
           {"llama", path("small")}, {"llama", "lookup"}, {"llama", "exit:1"}, {"t5", path("t5")}}) {
    const std::string text = plan(measured(model, drafter, {"--max-window", "3", "--alpha", "0.8"}));
    EXPECT_EQ(timed_windows(text), 4) << drafter;
    EXPECT_THAT(text, testing::ContainsRegex("0\\.8 +[0-3]: [0-9.]+x\n")) << drafter;
    const size_t answer = text.find("pays if more than ");
    const double even = answer == std::string::npos ? 1 : std::stod(text.substr(answer + 18));
    if (std::abs(even - 0.8) < 0.01) continue;  // rounded
    EXPECT_EQ(text.find(" 0: 1.00x") == std::string::npos, even < 0.8) << text;
  }
}

TEST_F(MeasuredPlan, WindowsEndWhereTheDraftersPositionsDo) {
  for (const auto& [length, most] : std::vector<std::pair<std::string, int64_t>>{{"6", 2}, {"20", 0}}) {
    std::vector<std::string> arguments = measured("llama", path("short"), {"--max-window", "4"});
    *std::ranges::find(arguments, "6") = length;
    const ProgramResult result = run_here(joined({"plan"}, arguments));
    EXPECT_THAT(result.err, HasSubstr("has 8 positions"));
    EXPECT_EQ(timed_windows(result.out), most + 1);
    EXPECT_THAT(result.out, HasSubstr(most == 0 ? "cannot pay" : "The drafter "));
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
