// Judgements on the host: the transfer that a GPU needs gives the same verdicts as a judgement that is on the CPU.
#include "infer/loop/row_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftsmith::infer {
namespace {

using Ids = std::vector<int64_t>;
constexpr int64_t kEos = 1;
const Ids kEnds = {kEos};

// Three rows that drafted 3, 1 and 0 tokens.
Draft unread_draft() {
  Draft draft;
  for (const Ids& step : {Ids{2, 5, 9}, Ids{kEos, 9, 9}, Ids{4, 9, 9}}) draft.unread.push_back(at::tensor(step));
  draft.tokens = draft.unread;
  draft.counts = {3, 1, 0};
  draft.on_host.resize(3);
  draft.read = false;
  return draft;
}

Judgement some_judgement() {
  return {.accepted = at::tensor(Ids{3, 0, 0}),
          .next = at::tensor(Ids{6, 8, 7}),
          .rolled_back = at::tensor({1, 1, 0}, at::kLong).to(at::kBool),
          .overlap = at::arange(9, at::kDouble).view({3, 3}).mul(0.1)};
}

TEST(RowVerdict, TokensBehindTheFirstEosCountForNothing) {
  Draft draft = unread_draft();
  draft.read_tokens(kEnds);
  EXPECT_TRUE(draft.read);
  EXPECT_THAT(draft.on_host, ::testing::ElementsAre(Ids{2, kEos}, Ids{5}, Ids{}));
  const Judgement judgement = some_judgement();
  const auto verdicts = row_verdicts(judgement, draft);
  ASSERT_EQ(verdicts.size(), 3U);
  EXPECT_EQ(verdicts[0].accepted, 2);
  EXPECT_EQ(verdicts[0].next, 6);
  EXPECT_FALSE(verdicts[0].rolled_back);  // all tokens that count were accepted
  EXPECT_THAT(verdicts[0].overlap, ::testing::ElementsAre(0.0, 0.1));
  EXPECT_EQ(verdicts[1].accepted, 0);
  EXPECT_EQ(verdicts[1].next, 8);
  EXPECT_TRUE(verdicts[1].rolled_back);
  EXPECT_EQ(verdicts[1].overlap.size(), 1U);
  EXPECT_EQ(verdicts[2].overlap.size(), 0U);
}

TEST(RowVerdict, ADrafterWithoutATokenFailsItsRowAlone) {
  Draft draft = unread_draft();
  draft.unread[1] = at::tensor(Ids{kNoToken, kNoToken, 9});  // of row 0, and behind the end of row 1's draft
  draft.tokens[1] = draft.unread[1].clamp_min(0);
  EXPECT_TRUE(draft.drawn(at::stack(draft.tokens, 1)).equal(at::stack(draft.unread, 1)));
  std::vector<Row> rows(3);
  draft.read_tokens(kEnds);
  draft.fail_rows(rows);
  ASSERT_TRUE(rows[0].failure);
  EXPECT_THAT(rows[0].failure->where, ::testing::HasSubstr("new token 2"));
  EXPECT_TRUE(rows[0].finished);
  EXPECT_FALSE(rows[1].failure || rows[2].failure);
  EXPECT_THAT(draft.on_host, ::testing::ElementsAre(Ids{}, Ids{5}, Ids{}));
  EXPECT_EQ(draft.counts, (Ids{0, 1, 0}));
}

TEST(RowVerdict, NoOverlapIsCountedWhereTheTargetHasNoNumbers) {
  Draft draft = unread_draft();
  draft.read_tokens(kEnds);
  Judgement judgement = some_judgement();
  judgement.next = at::tensor(Ids{6, kNoToken, 7});
  EXPECT_EQ(row_verdicts(judgement, draft)[1].overlap.size(), 0U);
}

TEST(RowVerdict, TransferGivesTheSameJudgementAndFillsTheDraft) {
  for (const bool read : {false, true}) {
    for (const bool whole : {false, true}) {
      Draft draft = unread_draft();
      const at::Tensor tokens = at::stack(draft.tokens, 1);
      Judgement judgement = some_judgement();
      if (read) draft.read_tokens(kEnds);
      if (!whole) judgement.rolled_back = judgement.overlap = at::Tensor();
      const Judgement copy = transfer(judgement, tokens, kEnds, draft);
      EXPECT_TRUE(draft.read);
      EXPECT_THAT(draft.on_host, ::testing::ElementsAre(Ids{2, kEos}, Ids{5}, Ids{}));
      EXPECT_TRUE(copy.accepted.equal(judgement.accepted));
      EXPECT_TRUE(copy.next.equal(judgement.next));
      ASSERT_EQ(copy.rolled_back.defined(), whole);
      ASSERT_EQ(copy.overlap.defined(), whole);
      if (!whole) continue;
      EXPECT_TRUE(copy.rolled_back.equal(judgement.rolled_back));
      EXPECT_TRUE(copy.overlap.equal(judgement.overlap));
      const auto verdicts = row_verdicts(copy, draft);
      EXPECT_THAT(verdicts[0].overlap, ::testing::ElementsAre(0.0, 0.1));
      EXPECT_DOUBLE_EQ(verdicts[1].overlap[0], 0.3);
    }
  }
}

TEST(RowVerdict, EmptyWindowsHaveVerdictsToo) {
  Draft draft;
  draft.counts = {0, 0};
  draft.on_host.resize(2);
  draft.read = false;
  const Judgement judgement{.accepted = at::zeros({2}, at::kLong),
                            .next = at::tensor(Ids{3, 4}),
                            .rolled_back = {},
                            .overlap = at::empty({2, 0}, at::kDouble)};
  const Judgement copy = transfer(judgement, at::empty({2, 0}, at::kLong), kEnds, draft);
  const auto verdicts = row_verdicts(copy, draft);
  EXPECT_EQ(verdicts[1].next, 4);
  EXPECT_EQ(verdicts[1].accepted, 0);
  EXPECT_EQ(verdicts[1].overlap.size(), 0U);
}

TEST(DraftedTokens, AreThePendingOnesWithoutTheFirst) {
  const at::Tensor pending = at::tensor({1, 2, 3, 4, 5, 6}, at::kLong).view({2, 3});
  EXPECT_TRUE(at::equal(drafted_tokens(pending), pending.narrow(1, 1, 2)));
  EXPECT_TRUE(drafted_tokens(pending).is_contiguous());
  EXPECT_EQ(drafted_tokens(pending.narrow(1, 0, 1).contiguous()).sizes(), at::IntArrayRef({2, 0}));
}

}  // namespace
}  // namespace draftsmith::infer
