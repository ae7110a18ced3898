// Match rates as files, tables and heat maps.
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/utf8.h"
#include "evaluate/report/report.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

using testing::HasSubstr;
using testing::Not;

MatchRateResult some_rates() {
  return {.name = "",
          .task = "test",
          .model = "target",
          .prompts = 5,
          .cells = {{"greedy", 2, 1, false, "1-2", 3, 8},
                    {"greedy", 2, 1, false, "total", 4, 12},
                    {"greedy", 2, 1, true, "1-2", 7, 8},
                    {"greedy", 2, 1, true, "total", 10, 12},
                    {"top-k", 2, 1, false, "1-2", 0, 0},
                    {"top-k", 2, 1, false, "total", 1, 4}}};
}

Results results_with(const MatchRateResult& rates) {
  Results results;
  results.tasks.emplace_back().name = "test";
  results.match_rates = {rates};
  return results;
}

TEST(MatchRateSection, CsvHasALineForEachCell) {
  const TemporaryDirectory folder;
  write_match_rates(some_rates(), folder.path());
  EXPECT_EQ(read_file(folder / "match_rates.csv"),
            "decoding,layer,k,head,positions,matches,tokens,rate\n"
            "greedy,2,1,own,1-2,3,8,0.375000\n"
            "greedy,2,1,own,total,4,12,0.333333\n"
            "greedy,2,1,trained,1-2,7,8,0.875000\n"
            "greedy,2,1,trained,total,10,12,0.833333\n"
            "top-k,2,1,own,1-2,0,0,\n"
            "top-k,2,1,own,total,1,4,0.250000\n");
}

TEST(MatchRateSection, TheTableShowsTotalsOfEachDecoding) {
  const std::string text = results_table(results_with(some_rates()));
  EXPECT_THAT(text, HasSubstr("match rates of early predictions (5 prompts of test, model target)\n"
                              "match rates of early predictions, % of new tokens\n"
                              "layer  k  head     greedy  top-k\n"));
  EXPECT_THAT(text, HasSubstr("    2  1  own        33.3   25.0\n"));
}

TEST(MatchRateSection, APageShowsTheLinesOfTheCaptionApart) {
  EXPECT_THAT(report_html(results_with(some_rates())),
              HasSubstr("<p class=\"caption\">match rates of early predictions (5 prompts of test, model target)</p>\n"
                        "<p class=\"caption\">match rates of early predictions, % of new tokens</p>\n"));
}

TEST(MatchRateSection, HeatMapsHaveAPanelForEachHeadAndACellForEachRate) {
  const TemporaryDirectory folder;
  write_match_rates(some_rates(), folder.path());
  const std::string svg = read_file(folder / "match_rates.greedy.svg");
  EXPECT_THAT(svg, HasSubstr("layer 2, k = 1, own head, positions 1-2: 37.50 % of 8"));
  EXPECT_THAT(svg, HasSubstr("layer 2, k = 1, trained head, positions total: 83.33 % of 12"));
  EXPECT_THAT(svg, HasSubstr("trained exits"));
  const std::string alone = read_file(folder / "match_rates.top-k.svg");
  EXPECT_THAT(alone, Not(HasSubstr("trained exits")));
  EXPECT_THAT(alone, Not(HasSubstr("positions 1-2")));  // no tokens there
  EXPECT_THAT(report_html(results_with(some_rates())), HasSubstr("37.50 % of 8"));
}

}  // namespace
}  // namespace draftsmith::evaluate
