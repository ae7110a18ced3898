#include "evaluate/report/match_rate_text.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/report/match_rate_plot.h"

namespace draftsmith::evaluate::testing {
namespace {

using ::testing::HasSubstr;

std::vector<infer::MatchRate> some_rates() {
  return {{"greedy", 2, 1, false, "1-2", 3, 8}, {"greedy", 2, 1, false, "total", 4, 12},
          {"greedy", 2, 1, true, "1-2", 7, 8},  {"greedy", 2, 1, true, "total", 10, 12},
          {"top-k", 2, 1, false, "1-2", 0, 0},  {"top-k", 2, 1, false, "total", 1, 4}};
}

TEST(MatchRateText, CsvHasALineForEachCell) {
  EXPECT_EQ(match_rates_csv(some_rates()),
            "decoding,layer,k,head,positions,matches,tokens,rate\n"
            "greedy,2,1,own,1-2,3,8,0.375000\n"
            "greedy,2,1,own,total,4,12,0.333333\n"
            "greedy,2,1,trained,1-2,7,8,0.875000\n"
            "greedy,2,1,trained,total,10,12,0.833333\n"
            "top-k,2,1,own,1-2,0,0,\n"
            "top-k,2,1,own,total,1,4,0.250000\n");
}

TEST(MatchRateText, ComeBackFromJsonAsTheyWere) {
  const auto json = match_rates_json(some_rates());
  const auto back = match_rates_from_json(nlohmann::ordered_json::parse(json.dump()));
  EXPECT_EQ(match_rates_csv(back), match_rates_csv(some_rates()));
  EXPECT_THROW(match_rates_from_json({{{"layer", 1}}}), nlohmann::json::exception);
}

TEST(MatchRateText, TablesShowDecodingsAndPositions) {
  const std::string totals = match_totals_table(some_rates());
  EXPECT_THAT(totals, HasSubstr("greedy"));
  EXPECT_THAT(totals, HasSubstr("top-k"));
  EXPECT_THAT(totals, HasSubstr("33.3"));
  EXPECT_THAT(totals, HasSubstr("25.0"));
  const std::string positions = match_positions_table(some_rates(), "greedy");
  EXPECT_THAT(positions, HasSubstr("1-2"));
  EXPECT_THAT(positions, HasSubstr("87.5"));
  EXPECT_EQ(match_totals_table({}), "");
  EXPECT_EQ(match_positions_table(some_rates(), "top-p"), "");
}

TEST(MatchRateText, TablesFitAHundredColumns) {
  std::vector<infer::MatchRate> rates;
  for (const char* positions :
       {"1-16", "17-32", "33-48", "49-64", "65-80", "81-96", "97-112", "113-128", "129-", "total"}) {
    rates.push_back({"greedy", 37, 5, true, positions, 1000, 1000});
  }
  std::istringstream lines(match_positions_table(rates, "greedy"));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(MatchRateText, HeatMapsHaveAPanelForEachHeadAndACellForEachRate) {
  const std::string svg = match_rate_svg(some_rates(), "greedy");
  EXPECT_THAT(svg, HasSubstr("layer 2, k = 1, own head, positions 1-2: 37.50 % of 8"));
  EXPECT_THAT(svg, HasSubstr("layer 2, k = 1, trained head, positions total: 83.33 % of 12"));
  EXPECT_THAT(svg, HasSubstr("trained exits"));
  EXPECT_EQ(match_rate_svg(some_rates(), "top-p"), "");
  const std::string alone = match_rate_svg(some_rates(), "top-k");
  EXPECT_EQ(alone.find("trained exits"), std::string::npos);
  EXPECT_EQ(alone.find("positions 1-2"), std::string::npos);  // no tokens there
}

}  // namespace
}  // namespace draftsmith::evaluate::testing
