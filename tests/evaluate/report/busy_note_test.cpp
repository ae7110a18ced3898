// The warning about other work while times were taken.
#include "evaluate/report/busy_note.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/report/report.h"
#include "tests/evaluate/fake_engine.h"

namespace draftsmith::evaluate {
namespace {

using testing::HasSubstr;

TEST(BusyNote, WarnsOfOtherWorkAlone) {
  Results results;
  EXPECT_EQ(busy_note(results), "");
  results.environment["other_load"] = 0.04;
  EXPECT_EQ(busy_note(results), "");
  results.environment["other_load"] = 0.457;
  EXPECT_THAT(busy_note(results), HasSubstr("Other processes used 46 % of the processors"));
}

TEST(BusyNote, ReachesTableAndPages) {
  FakeSuite suite;
  FakeEngine engine;
  suite.options.run = {FakeSuite::run("speculative")};
  Results results = suite.evaluate(engine).results;
  EXPECT_TRUE(results.environment.at("other_load").is_number());
  results.environment["other_load"] = 0.5;
  for (const std::string& text : {results_table(results), report_markdown(results), report_html(results)}) {
    EXPECT_THAT(text, HasSubstr("Other processes used 50 %"));
  }
}

}  // namespace
}  // namespace draftsmith::evaluate
