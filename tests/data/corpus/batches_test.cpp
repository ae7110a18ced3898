#include "data/corpus/batches.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/random.h"
#include "tests/support/errors.h"

namespace draftsmith::data {
namespace {

// A corpus of `examples` rows with lengths 1 to 40, the same every time.
Corpus make_corpus(int64_t examples) {
  static const TemporaryDirectory kDirectory;
  const auto file = kDirectory / ("c" + std::to_string(examples) + ".h5");
  CorpusWriter writer(file, {.tokenizer_hash = "abc", .vocabulary = 100});
  RandomSequence random{CounterRandom(5, "test")};
  for (int64_t i = 0; i < examples; ++i) {
    const std::vector<int32_t> source(1 + random.below(40), 7), target(1 + random.below(40), 8);
    writer.add(source, target);
  }
  writer.finish();
  return Corpus(file);
}

std::vector<std::vector<int64_t>> epoch_batches(BatchOrder& order, int64_t epoch) {
  std::vector<std::vector<int64_t>> batches;
  for (BatchPosition position{.epoch = epoch, .batch = 0}; position.epoch == epoch;)
    batches.push_back(order.next(position));
  return batches;
}

TEST(Batches, EveryExampleIsInExactlyOneBatchOfAnEpoch) {
  const Corpus corpus = make_corpus(1000);
  for (const bool shuffle : {true, false}) {
    BatchOrder order(corpus, {.token_budget = 400, .bucket_window = 4, .shuffle = shuffle});
    std::vector<int64_t> seen;
    for (const auto& batch : epoch_batches(order, 3)) seen.insert(seen.end(), batch.begin(), batch.end());
    std::sort(seen.begin(), seen.end());
    ASSERT_EQ(seen.size(), 1000U);
    for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], i);
  }
}

TEST(Batches, BudgetCountsPaddedTokensOfTheLongerSide) {
  const Corpus corpus = make_corpus(1000);
  BatchOrder order(corpus, {.token_budget = 400, .max_rows = 20});
  for (const auto& batch : epoch_batches(order, 0)) {
    size_t longest = 0;
    for (const int64_t i : batch) longest = std::max({longest, corpus.source(i).size(), corpus.target(i).size()});
    EXPECT_LE(batch.size() * longest, 400U);
    EXPECT_LE(batch.size(), 20U);
  }
}

TEST(Batches, SameSeedGivesTheSameOrderAndAnotherSeedOrEpochAnother) {
  const Corpus corpus = make_corpus(500);
  BatchOrder a(corpus, {.token_budget = 400, .seed = 7}), b(corpus, {.token_budget = 400, .seed = 7});
  BatchOrder c(corpus, {.token_budget = 400, .seed = 8});
  EXPECT_EQ(epoch_batches(a, 1), epoch_batches(b, 1));
  EXPECT_NE(epoch_batches(a, 1), epoch_batches(c, 1));
  EXPECT_NE(epoch_batches(a, 1), epoch_batches(a, 2));
}

TEST(Batches, OrderIsTheSameOnEveryMachine) {
  const Corpus corpus = make_corpus(12);
  BatchOrder order(corpus, {.token_budget = 100, .seed = 1});
  BatchPosition position;
  // Recorded once; a change here breaks the resumption of every run begun before it.
  EXPECT_THAT(order.next(position), ElementsAre(9, 2));
}

TEST(Batches, ResumingAtAnyPositionContinuesTheOrder) {
  const Corpus corpus = make_corpus(300);
  const BatchOptions options = {.token_budget = 300, .bucket_window = 5};
  BatchOrder order(corpus, options);
  BatchPosition position;
  std::vector<BatchPosition> positions;
  std::vector<std::vector<int64_t>> batches;
  while (position.epoch < 3) {
    positions.push_back(position);
    batches.push_back(order.next(position));
  }
  for (size_t start = 0; start < positions.size(); ++start) {
    BatchOrder resumed(corpus, options);
    BatchPosition from = positions[start];
    for (size_t i = start; i < std::min(start + 3, batches.size()); ++i) ASSERT_EQ(resumed.next(from), batches[i]);
  }
}

TEST(Batches, EmptyCorporaAndPositionsOutsideTheEpochAreErrors) {
  const Corpus empty = make_corpus(0);
  EXPECT_THROW(BatchOrder(empty, {}), UserError);
  const Corpus corpus = make_corpus(10);
  EXPECT_THROW(BatchOrder(corpus, {.token_budget = 0}), UserError);
  BatchOrder order(corpus, {});
  BatchPosition outside = {.epoch = 0, .batch = 1000};
  EXPECT_THROW(order.next(outside), std::logic_error);
}

// Products of these would overflow and make windows without examples, for ever.
TEST(Batches, AbsurdSizesAreErrors) {
  const Corpus corpus = make_corpus(10);
  EXPECT_THROW(BatchOrder(corpus, {.token_budget = int64_t{1} << 62}), UserError);
  EXPECT_THROW(BatchOrder(corpus, {.max_rows = int64_t{1} << 62}), UserError);
  EXPECT_THROW(BatchOrder(corpus, {.bucket_window = int64_t{1} << 62}), UserError);
  BatchOrder largest(
      corpus, {.token_budget = int64_t{1} << 31, .max_rows = int64_t{1} << 31, .bucket_window = int64_t{1} << 20});
  EXPECT_EQ(epoch_batches(largest, 0).size(), 1u);
}

TEST(Batches, PackedRowsStayWithinTheirWidthAndTheBudget) {
  const Corpus corpus = make_corpus(300);
  const BatchOptions options{.token_budget = 480, .pack_tokens = 120};
  BatchOrder order(corpus, options, RowForm::kJoined);
  std::set<int64_t> seen;
  for (const auto& batch : epoch_batches(order, 0)) {
    std::vector<int64_t> lengths;
    for (const int64_t example : batch) {
      lengths.push_back(joined_length(corpus, example));
      EXPECT_TRUE(seen.insert(example).second);
    }
    const std::vector<int64_t> rows = packed_rows(lengths, options.pack_tokens);
    std::vector<int64_t> filled(static_cast<size_t>(rows.back()) + 1, 0);
    for (size_t i = 0; i < rows.size(); ++i) filled[static_cast<size_t>(rows[i])] += lengths[i];
    const int64_t widest = *std::max_element(filled.begin(), filled.end());
    EXPECT_LE(widest, options.pack_tokens);
    EXPECT_LE(static_cast<int64_t>(filled.size()) * widest, options.token_budget);
  }
  EXPECT_EQ(seen.size(), 300);
}

}  // namespace
}  // namespace draftsmith::data
