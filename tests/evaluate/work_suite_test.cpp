// Operations and bytes in suites on real model directories, and in reports.
#include <gmock/gmock.h>

#include "infer/costs/decode_work.h"
#include "tests/evaluate/model_suite.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;

class WorkSuite : public ModelSuite {
 protected:
  void SetUp() override {
    ModelSuite::SetUp();
    options_.repetitions = 1;
    options_.forced_lines = 0;
    options_.calibrate = false;
    options_.drafter.push_back({.name = "copy", .lookup = true});
    options_.drafter.push_back({.name = "exit1", .exit = 1});
  }

  static double work_of(const ordered_json& run, const char* key) { return run.at("work").at(key).get<double>(); }
};

TEST_F(WorkSuite, SetsEachMethodBesideGreedyDecoding) {
  add_run("assisted", "self").lists[&DecodeOptions::window] = {3};
  options_.run.back().decode.window_rule = "fixed";
  add_run("assisted", "copy");
  add_run("assisted", "exit1");
  add_run("greedy", "").model = "small";
  const ordered_json results = run_suite();
  const ordered_json& greedy = results.at("tasks").at(0).at("baseline");
  EXPECT_EQ(work_of(greedy, "operations_ratio"), 1);
  EXPECT_EQ(work_of(greedy, "bytes_ratio"), 1);
  // Its own drafter is never wrong: four tokens a round of three draft steps and one of four tokens, so seven tokens
  // go through the model for four, and the weights are read four times.
  const ordered_json self = find(results, "assisted.self.G3.fixed");
  EXPECT_NEAR(work_of(self, "drafter_operations_ratio"), 1, 0.1);
  EXPECT_GT(work_of(self, "decode_operations_ratio"), 1.6);
  EXPECT_LT(work_of(self, "decode_operations_ratio"), 2.5);  // with the tokens that a whole draft leaves behind
  EXPECT_NEAR(work_of(self, "theory_operations_ratio"), 7.0 / 4, 0.1);
  EXPECT_GT(work_of(self, "intensity_ratio"), 1);
  // Look-up has no operations of its own; those of rejected tokens come on top.
  const ordered_json copy = find(results, "assisted.copy");
  EXPECT_GE(work_of(copy, "operations_ratio"), 1);
  const ordered_json exit = find(results, "assisted.exit1");
  EXPECT_FALSE(exit.at("work").contains("drafter_operations_ratio"));
  EXPECT_LT(work_of(find(results, "greedy.small"), "operations_ratio"), 1);
}

TEST_F(WorkSuite, IsShownAsTablePlotAndColumns) {
  add_run("assisted", "small");
  const SuiteResult result = run_evaluation(options_, root_ / "out", {.quiet = true});
  EXPECT_THAT(result.table, AllOf(HasSubstr("operations and bytes for a new token"), HasSubstr("FLOP/B x")));
  EXPECT_THAT(read_file(root_ / "out/results.csv"),
              HasSubstr("operations_per_token,bytes_per_token,intensity,operations_ratio,bytes_ratio"));
  EXPECT_THAT(read_file(root_ / "out/report.html"),
              AllOf(HasSubstr("Operations and bytes"), HasSubstr("operations for each byte read")));
  EXPECT_THAT(report_markdown(result.results), HasSubstr("Operations and bytes"));
  EXPECT_EQ(to_json(load_results(root_ / "out/results.json")), to_json(result.results));
}

// Two lines read the weights together.
TEST_F(WorkSuite, BatchesReadWeightsForSeveralLines) {
  add_run("assisted", "small");
  const double alone = work_of(run_suite().at("tasks").at(0).at("baseline"), "bytes_per_token");
  options_.batch_size = 5;
  std::filesystem::remove_all(root_ / "out");
  const ordered_json together = run_suite().at("tasks").at(0).at("baseline");
  EXPECT_LT(work_of(together, "bytes_per_token"), alone / 2);
}

}  // namespace
}  // namespace draftsmith::evaluate
