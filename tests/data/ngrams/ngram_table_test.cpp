// N-gram tables: equal to counts made in plain loops, distributions that sum to 1, and files that cannot be trusted.
#include "data/ngrams/ngram_table.h"

#include <cmath>
#include <map>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/random.h"
#include "data/corpus/corpus.h"
#include "data/hdf5/hdf5.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::data {
namespace {

using Row = std::vector<int32_t>;
using WideIds = std::vector<int64_t>;

std::filesystem::path write_targets(const std::filesystem::path& file, int64_t vocabulary,
                                    const std::vector<Row>& targets, const std::string& prompts = "false") {
  const std::map<std::string, std::string> provenance = {{"text", "hash"}, {"prompts", prompts}};
  CorpusWriter writer(file, {.tokenizer_hash = "abc", .vocabulary = vocabulary, .provenance = provenance});
  for (const Row& target : targets) writer.add(Row{0}, target);
  writer.finish();
  return file;
}

// Rows of 0..9 tokens of which small ids are frequent; some end in EOS (1), some do not.
std::vector<Row> random_rows(int64_t vocabulary, int64_t rows, uint64_t seed) {
  std::vector<Row> result;
  for (int64_t i = 0; i < rows; ++i) {
    const CounterRandom random(seed, static_cast<uint64_t>(i));
    Row row;
    for (uint64_t j = 0; j < random.bits(0) % 9; ++j) {
      const double u = static_cast<double>(random.bits(j + 2) >> 11) * 0x1p-53;
      row.push_back(static_cast<int32_t>(u * u * static_cast<double>(vocabulary)));
    }
    if (random.bits(1) % 3 != 0) row.push_back(1);
    result.push_back(row);
  }
  return result;
}

// The formula of data/ngrams/ngram_table.h over counts by context; contexts are written oldest token first, -1 is the
// beginning.
class Reference {
 public:
  Reference(const std::vector<Row>& rows, int64_t order, int64_t vocabulary) : vocabulary_(vocabulary) {
    for (const Row& row : rows) {
      WideIds text = {-1};
      for (const int32_t token : row) {
        for (int64_t n = 0; n < std::min<int64_t>(order, static_cast<int64_t>(text.size()) + 1); ++n) {
          ++counts_[WideIds(text.end() - n, text.end())][token];
        }
        text.push_back(token);
      }
    }
  }

  double probability(const WideIds& context, int64_t token) const {
    const double lower = context.empty() ? 1 / static_cast<double>(vocabulary_)
                                         : probability(WideIds(context.begin() + 1, context.end()), token);
    const auto found = counts_.find(context);
    if (found == counts_.end()) return lower;
    double total = 0;
    for (const auto& entry : found->second) total += entry.second;
    const auto types = static_cast<double>(found->second.size());
    const auto count = found->second.find(token);
    return ((count == found->second.end() ? 0 : count->second) + types * lower) / (total + types);
  }

 private:
  int64_t vocabulary_;
  std::map<WideIds, std::map<int64_t, int>> counts_;
};

// Compares every probability of every context.
void expect_equal(const NgramCounts& counts, const Reference& reference) {
  const int64_t vocabulary = counts.vocabulary();
  for (int64_t before = -1; before <= vocabulary; ++before) {
    for (int64_t last = -1; last <= vocabulary; ++last) {
      if (last < 0 && before >= 0) continue;
      const NgramNodes nodes = counts.find({before, last});
      std::vector<float> logs(static_cast<size_t>(vocabulary));
      counts.log_probabilities(nodes, logs);
      double sum = 0, highest = 0;
      for (int64_t token = 0; token < vocabulary; ++token) {
        const double q = counts.probability(nodes, token);
        const double expected = reference.probability(last < 0 ? WideIds{-1} : WideIds{before, last}, token);
        ASSERT_NEAR(q, expected, 1e-12) << before << " " << last << " " << token;
        ASSERT_NEAR(std::exp(static_cast<double>(logs[static_cast<size_t>(token)])), q, 1e-6 * q + 1e-9);
        sum += q;
        highest = std::max(highest, q);
      }
      ASSERT_NEAR(sum, 1, 1e-12);
      const int64_t best = counts.most_likely(nodes);
      ASSERT_NEAR(counts.probability(nodes, best), highest, 1e-12) << before << " " << last;
    }
  }
}

class NgramTables : public testing::TestWithParam<int64_t> {};

TEST_P(NgramTables, EqualCountsInPlainLoopsAndSumToOneInEveryContext) {
  const int64_t order = GetParam();
  const TemporaryDirectory directory;
  for (const int64_t vocabulary : {2, 3, 7}) {
    for (const int64_t rows : {0, 1, 3, 40}) {
      const auto targets = random_rows(vocabulary, rows, static_cast<uint64_t>(vocabulary));
      const auto corpus = write_targets(directory / "c.h5", vocabulary, targets);
      build_ngram_table(corpus, {.order = order}, directory / "n.h5");
      const NgramTable table(directory / "n.h5");
      EXPECT_EQ(table.info().order, order);
      EXPECT_EQ(table.info().examples, rows);
      expect_equal(table.counts(), Reference(targets, order, vocabulary));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, NgramTables, testing::Values(1, 2, 3));

TEST(NgramTable, PromptsAreBeforeTheirTargets) {
  const TemporaryDirectory directory;
  build_ngram_table(write_targets(directory / "c.h5", 5, {{4, 1}}, "true"), {}, directory / "n.h5");
  const NgramTable table(directory / "n.h5");
  EXPECT_EQ(table.counts().most_likely(table.counts().find({2, 0})), 4);
}

TEST(NgramTable, SaysWhereItComesFrom) {
  const TemporaryDirectory directory;
  const auto corpus = write_targets(directory / "c.h5", 5, {{2, 3, 1}, {2, 3, 4, 1}});
  // Bigrams with the beginning: (begin 2) (2 3) (3 1) (3 4) (4 1); trigrams: (begin 2 3) (2 3 1) (2 3 4) (3 4 1).
  EXPECT_THAT(build_ngram_table(corpus, {}, directory / "n.h5"),
              HasSubstr("7 target tokens, 5 different bigrams and 4 trigrams"));
  const NgramTable table(directory / "n.h5");
  EXPECT_EQ(table.info().tokenizer_hash, "abc");
  EXPECT_EQ(table.info().provenance.at("text"), "hash");
  EXPECT_EQ(table.info().provenance.at("corpus"), corpus.string());
  EXPECT_THAT(describe_ngram_table(table), AllOf(HasSubstr("order 3"), HasSubstr("7 target tokens")));
  EXPECT_TRUE(has_hdf5_format(directory / "n.h5", kNgramFormat));
  EXPECT_FALSE(has_hdf5_format(corpus, kNgramFormat));
}

TEST(NgramTable, RefusesWhatItsNumbersCannotHold) {
  const TemporaryDirectory directory;
  const auto large = write_targets(directory / "c.h5", (1 << 21) - 1, {{2, 1}});
  EXPECT_THAT(error_of([&] { build_ngram_table(large, {}, directory / "n.h5"); }),
              AllOf(HasSubstr("c.h5"), HasSubstr("2097150")));
  const auto corpus = write_targets(directory / "c.h5", 5, {{2, 1}});
  EXPECT_THROW(build_ngram_table(corpus, {}, directory / "no/such/n.h5"), UserError);
  EXPECT_THROW(build_ngram_table(directory / "absent.h5", {}, directory / "n.h5"), UserError);
  EXPECT_FALSE(std::filesystem::exists(directory / "n.h5"));
}

// A table of two ids, of which any part can be made wrong: the targets are (0 1), (0 1).
struct RawTable {
  std::string format = "draftsmith ngrams";
  int64_t version = 1, vocabulary = 2, order = 2, tokens = 4;
  std::vector<int32_t> unigrams = {2, 2};
  std::vector<int64_t> children = {0, 1, 1, 2};  // 0 is followed by 1, the beginning by 0
  std::vector<int32_t> totals = {2, 0, 2}, best = {1, 0, 0}, next = {1, 0}, counts = {2, 2};
};

std::filesystem::path write_raw_table(const std::filesystem::path& file, const RawTable& raw) {
  Hdf5Writer writer(file);
  writer.set_attribute("/", "format", raw.format);
  writer.set_attribute("/", "tokenizer_hash", std::string("abc"));
  writer.set_attribute("/", "format_version", raw.version);
  writer.set_attribute("/", "vocabulary", raw.vocabulary);
  writer.set_attribute("/", "order", raw.order);
  writer.set_attribute("/", "examples", int64_t{2});
  writer.set_attribute("/", "target_tokens", raw.tokens);
  writer.write_array("/unigrams/counts", std::span(raw.unigrams));
  writer.write_array("/bigrams/children", std::span(raw.children));
  writer.write_array("/bigrams/totals", std::span(raw.totals));
  writer.write_array("/bigrams/best", std::span(raw.best));
  writer.write_array("/bigrams/tokens", std::span(raw.next));
  writer.write_array("/bigrams/counts", std::span(raw.counts));
  writer.finish();
  return file;
}

std::string table_error(const RawTable& raw) {
  const TemporaryDirectory directory;
  const auto file = write_raw_table(directory / "raw.h5", raw);
  return error_of([&] { NgramTable table(file); });
}

TEST(NgramTableChecks, FormatVersionAndRanges) {
  EXPECT_THAT(table_error({.format = "draftsmith corpus"}),
              AllOf(HasSubstr("raw.h5"), HasSubstr("not an n-gram table")));
  EXPECT_THAT(table_error({.version = 2}), HasSubstr("version"));
  EXPECT_THAT(table_error({.vocabulary = int64_t{1} << 40}), HasSubstr("vocabulary"));
  EXPECT_THAT(table_error({.vocabulary = 3}), HasSubstr("/unigrams/counts"));
  EXPECT_THAT(table_error({.order = 4}), HasSubstr("order"));
  EXPECT_THAT(table_error({.order = 3}), HasSubstr("no dataset /trigrams/tokens"));
  EXPECT_THAT(table_error({.tokens = 0, .unigrams = {-1, 1}}), HasSubstr("/unigrams/counts[0]"));
}

TEST(NgramTableChecks, ArraysMustFitTogether) {
  EXPECT_THAT(table_error({.children = {0, 1, 1, 3}}), HasSubstr("/bigrams/children"));
  EXPECT_THAT(table_error({.children = {0, 3, 1, 2}}), HasSubstr("/bigrams/children[1]"));
  EXPECT_THAT(table_error({.children = {0, 2, 1, 2}}), HasSubstr("/bigrams"));
  EXPECT_THAT(table_error({.totals = {2, 1, 2}}), HasSubstr("/bigrams/totals[1]"));
  EXPECT_THAT(table_error({.best = {2, 0, 0}}), HasSubstr("/bigrams/best[0]"));
  EXPECT_THAT(table_error({.next = {2, 0}}), HasSubstr("/bigrams/tokens[0]"));
  EXPECT_THAT(table_error({.children = {0, 2, 2, 2}, .totals = {4, 0, 0}}), HasSubstr("/bigrams/tokens[1]"));
  EXPECT_THAT(table_error({.counts = {0, 2}}), HasSubstr("/bigrams/counts[0]"));
}

}  // namespace
}  // namespace draftsmith::data
