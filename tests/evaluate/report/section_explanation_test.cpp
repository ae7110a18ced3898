// The tables that explain speeds: which settings they have, and where they are shown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/report/report.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/support/files.h"

namespace draftsmith::evaluate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

SuiteResult explained(int64_t batch_size = 1) {
  FakeSuite suite;
  suite.options.batch_size = batch_size;
  SettingGrid fixed = FakeSuite::run("speculative");
  fixed.lists[&DecodeOptions::temperature] = {0};
  fixed.lists[&DecodeOptions::window] = {2};
  suite.options.run = {fixed, FakeSuite::run("bild")};
  FakeEngine engine;
  return suite.evaluate(engine);
}

TEST(ExplanationSection, IsInPagesAndOnTheConsoleOnRequest) {
  const Results results = explained().results;
  const auto has_both = AllOf(HasSubstr("What would make this faster"), HasSubstr("alpha +.05"),
                              HasSubstr("Where the time went"), HasSubstr("verification"));
  const std::string console = results_table(results, true);
  EXPECT_THAT(console, has_both);
  EXPECT_LE(widest_line(console), 100u) << console;
  EXPECT_THAT(results_table(results), Not(HasSubstr("What would make this faster")));
  EXPECT_THAT(report_markdown(results), has_both);
  EXPECT_THAT(report_html(results), AllOf(HasSubstr("What would make this faster"), HasSubstr("half the draft cost")));
}

TEST(ExplanationSection, ComesBackFromTheFile) {
  const Results results = explained().results;
  EXPECT_EQ(results_table(read_results(to_json(results)), true), results_table(results, true));
}

TEST(ExplanationSection, LeavesOutBatches) {
  EXPECT_THAT(report_markdown(explained(4).results), Not(HasSubstr("What would make this faster")));
}

}  // namespace
}  // namespace draftsmith::evaluate
