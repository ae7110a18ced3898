// The rules of a source's search: what goes on, what is finished, when it ends.
#include "infer/beam/hypotheses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftsmith::infer {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<int64_t>;

// Two beams whose outputs so far are those given.
struct TwoBeams {
  BeamSettings settings{.beams = 2};
  int64_t limit = 10;
  std::vector<Ids> outputs{{5}, {6}};

  Hypotheses search() const { return {settings, limit}; }
  std::vector<Continuation> advance(Hypotheses& search, const std::vector<Continuation>& best,
                                    const std::vector<char>& ended) const {
    const std::vector<std::span<const int64_t>> spans(outputs.begin(), outputs.end());
    return search.advance(best, ended, spans);
  }
};

TEST(Hypotheses, ContinuationsThatEndAreFinishedAndOthersGoOnInTheirPlace) {
  const TwoBeams two;
  Hypotheses search = two.search();
  const auto running = two.advance(search, {{0, 1, -1}, {1, 7, -2}, {0, 8, -3}, {1, 1, -4}}, {1, 0, 0, 1});
  ASSERT_EQ(running.size(), 2);
  EXPECT_EQ(running[0].token, 7);
  EXPECT_EQ(running[0].beam, 1);
  EXPECT_EQ(running[1].token, 8);
  ASSERT_EQ(search.finished().size(), 1) << "the fourth only stood in for those that end";
  EXPECT_THAT(search.finished()[0].tokens, ElementsAre(5, 1));
  EXPECT_DOUBLE_EQ(search.finished()[0].score, -0.5);
  EXPECT_FALSE(search.done());
}

TEST(Hypotheses, LengthPenaltyOrdersFinishedOutputs) {
  for (const double penalty : {0.0, 2.0}) {
    TwoBeams two;
    two.settings.length_penalty = penalty;
    two.settings.early_stopping = EarlyStopping::kNever;
    Hypotheses search = two.search();
    two.advance(search, {{0, 1, -3}, {1, 7, -3.5}, {0, 8, -4}}, {1, 0, 0});
    two.outputs = {{6, 7}, {5, 8}};
    two.advance(search, {{0, 1, -3.6}, {1, 9, -4.1}, {0, 8, -5}}, {1, 0, 0});
    ASSERT_EQ(search.finished().size(), 2);
    EXPECT_EQ(search.finished()[0].tokens.size(), penalty == 0 ? 2 : 3) << penalty;
  }
}

TEST(Hypotheses, EarlyStoppingSaysWhenFullSearchesEnd) {
  const auto done = [](EarlyStopping early, double penalty, double third) {
    TwoBeams two;
    two.settings.early_stopping = early;
    two.settings.length_penalty = penalty;
    Hypotheses search = two.search();
    two.advance(search, {{0, 1, -1}, {1, 1, -2}, {0, 8, third}, {1, 8, third - 1}}, {1, 1, 0, 0});
    return search.done();
  };
  EXPECT_TRUE(done(EarlyStopping::kTrue, 1, -1.5));
  EXPECT_FALSE(done(EarlyStopping::kFalse, 1, -1.5)) << "-1.5 / 2 is better than -2 / 2";
  EXPECT_TRUE(done(EarlyStopping::kFalse, 1, -2.5));
  EXPECT_FALSE(done(EarlyStopping::kNever, 1, -2.5)) << "-2.5 / 10 is better than -2 / 2";
  EXPECT_TRUE(done(EarlyStopping::kNever, 0, -2.5));
}

TEST(Hypotheses, TheSearchEndsWhereNothingGoesOn) {
  const TwoBeams two;
  Hypotheses search = two.search();
  two.advance(search, {{0, 3, -1}, {1, 4, -2}, {0, 8, -3}}, {1, 1, 1});
  EXPECT_TRUE(search.done());
  ASSERT_EQ(search.finished().size(), 2);
  EXPECT_THAT(search.finished()[1].tokens, ElementsAre(6, 4));
}

}  // namespace
}  // namespace draftsmith::infer
