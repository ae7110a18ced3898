// What a router knows of a text: numbers worked out by hand.
#include "infer/windows/draft_history.h"

#include <cmath>

#include <gtest/gtest.h>

namespace draftsmith::infer {
namespace {

void expect_context(const DraftHistory::Context& found, const std::array<double, 5>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-6) << model::router_context_names()[i];
  }
}

TEST(DraftHistory, BeginsWithTheSourceAlone) {
  expect_context(DraftHistory(9).context(0), {0, 0, std::log(10) / 4, 1, 0});
  expect_context(DraftHistory(9).context(3), {std::log(4) / 4, std::log(4) / 4, std::log(10) / 4, 1, 0});
}

TEST(DraftHistory, CountsKeptAndRejectedTokens) {
  DraftHistory history(9);
  history.observe({.drafted = 4, .accepted = 2, .emitted = 3});  // kept, kept, rejected
  double share = 1;
  share *= 7.0 / 8;
  expect_context(history.context(1), {std::log(2) / 4, std::log(5) / 4, std::log(10) / 4, share, 0});
  history.observe({.drafted = 2, .accepted = 2, .emitted = 6});
  for (int kept = 0; kept < 2; ++kept) share = share * 7 / 8 + 1.0 / 8;
  expect_context(history.context(0), {0, std::log(7) / 4, std::log(10) / 4, share, std::log(3) / 4});
  history.observe({.drafted = 0, .accepted = 0, .emitted = 7});  // the target wrote alone
  expect_context(history.context(0), {0, std::log(8) / 4, std::log(10) / 4, share, std::log(3) / 4});
}

TEST(DraftHistory, DraftsWithoutAVerdictSayNothingOfTheirFate) {
  DraftHistory history(0);
  history.observe({.drafted = 3, .accepted = 3, .judged = false, .emitted = 3});
  expect_context(history.context(0), {0, std::log(4) / 4, 0, 1, 0});
}

}  // namespace
}  // namespace draftsmith::infer
