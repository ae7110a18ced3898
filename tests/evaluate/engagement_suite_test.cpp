// Engagement curves of suites on real model directories: their ends, their files, and what is refused.
#include <gmock/gmock.h>

#include "base/error.h"
#include "tests/evaluate/model_suite.h"
#include "tests/support/errors.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;

class EngagementSuite : public ModelSuite {
 protected:
  void SetUp() override {
    ModelSuite::SetUp();
    options_.repetitions = 1;
    options_.forced_lines = 0;
    options_.calibrate = false;
  }

  EngagementTable& add_curve(const std::string& drafter) {
    EngagementTable& curve = options_.engagement.emplace_back();
    curve.drafter = drafter;
    return curve;
  }
};

TEST_F(EngagementSuite, RunsFromTheSmallModelToTheLargeOne) {
  add_run("greedy", "").model = "small";
  EngagementTable& curve = add_curve("small");
  curve.oracle = {0, 0.02, 1};
  curve.fallback = {0, 1};
  const ordered_json results = run_suite();
  const auto& measured = results.at("engagement").at(0);
  const auto& baseline = results.at("tasks").at(0).at("baseline").at("quality");
  EXPECT_EQ(measured.at("task"), "ids");
  EXPECT_EQ(measured.at("lines"), 10);
  EXPECT_EQ(measured.at("large").at("bleu"), baseline.at("bleu"));
  EXPECT_EQ(measured.at("large").at("bleu_ci95"), baseline.at("bleu_ci95"));
  const auto& points = measured.at("points");
  ASSERT_EQ(points.size(), 5U);
  const auto small = find(results, "greedy.small").at("quality");
  for (const size_t none : {0U, 3U}) {
    EXPECT_EQ(points[none].at("engaged"), 0);
    EXPECT_EQ(points[none].at("quality"), small);
  }
  for (const size_t all : {2U, 4U}) {
    EXPECT_EQ(points[all].at("engaged"), points[all].at("tokens"));
    EXPECT_EQ(points[all].at("quality").at("bleu"), baseline.at("bleu"));
    EXPECT_EQ(points[all].at("quality").at("difference"), 0);
  }
  EXPECT_GT(points[1].at("engaged"), 0);
  EXPECT_LT(points[1].at("engaged"), points[1].at("tokens"));
  EXPECT_LE(points[1].at("changed"), points[1].at("engaged"));
  EXPECT_FALSE(points[3].contains("changed"));
}

TEST_F(EngagementSuite, IsWrittenAsTablesAndPlot) {
  EngagementTable& curve = add_curve("self");
  curve.name = "own";
  curve.oracle = {0.5};
  curve.fallback = {};
  curve.lines = 4;
  const SuiteResult result = run_evaluation(options_, root_ / "out", {.quiet = true});
  EXPECT_THAT(result.table, AllOf(HasSubstr("engagement of the large model, own: small model self, 4 lines of ids"),
                                  HasSubstr("the large model alone: BLEU")));
  EXPECT_THAT(read_file(root_ / "out/engagement.own.csv"),
              HasSubstr("policy,threshold,tokens,engaged,changed,engaged_share,bleu,difference"));
  EXPECT_THAT(read_file(root_ / "out/engagement.own.svg"), AllOf(HasSubstr("xmlns"), HasSubstr("oracle at 0.5")));
  EXPECT_THAT(read_file(root_ / "out/report.html"),
              AllOf(HasSubstr("How often the large model must decide"), HasSubstr("oracle at 0.5")));
  EXPECT_THAT(report_markdown(result.results), HasSubstr("| oracle | 0.5 |"));
  // The same model on both sides: whoever decides, the tokens are the same.
  const EngagementPoint& point = result.results.engagement.at(0).points.at(0);
  EXPECT_EQ(point.changed, 0);
  EXPECT_DOUBLE_EQ(point.quality.difference->value, 0);
  const Results back = load_results(root_ / "out/results.json");
  EXPECT_EQ(to_json(back), to_json(result.results));
}

TEST_F(EngagementSuite, RefusesDraftersWithoutProbabilitiesInTheirPlace) {
  options_.drafter.push_back({.name = "copy", .lookup = true});
  add_curve("copy");
  EXPECT_THAT(error_of([&] { run_suite(); }), AllOf(HasSubstr("engagement[0]"), HasSubstr("only proposes tokens")));
  EXPECT_FALSE(std::filesystem::exists(root_ / "out"));
}

TEST_F(EngagementSuite, NamesWhatIsWrongBeforeModelsAreLoaded) {
  add_curve("nobody").task = "nowhere";
  add_curve("small").oracle = {0.5, 0.5};
  EngagementTable& nothing = add_curve("small");
  nothing.oracle.clear();
  nothing.fallback.clear();
  Problems problems;
  validate_options(options_, "", problems);
  std::string text;
  for (const Problem& problem : problems.list()) text += to_string(problem) + "\n";
  EXPECT_THAT(text, AllOf(HasSubstr("engagement[1].oracle: a threshold is given twice"),
                          HasSubstr("engagement[2]: there is nothing to measure")));
  options_.engagement.resize(2);
  options_.engagement[1].oracle = {0.5};
  options_.task[0].metric.name = "none";
  options_.task[0].references.clear();
  EXPECT_THAT(error_of([&] { run_suite(); }),
              AllOf(HasSubstr("engagement.drafter"), HasSubstr("engagement.task"), HasSubstr("a name each"),
                    HasSubstr("a curve shows quality, which this task does not measure")));
}

}  // namespace
}  // namespace draftsmith::evaluate
