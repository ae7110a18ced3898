#include "data/hdf5/shards.h"

#include <stdexcept>

#include <gmock/gmock.h>

#include "base/files.h"
#include "data/corpus/corpus.h"
#include "tests/support/errors.h"

namespace draftsmith::data {
namespace {

using Row = std::vector<int32_t>;

class CorpusShards : public testing::Test {
 protected:
  Shards shards(int64_t examples, const std::string& job = "one") const {
    return {file_, examples, job, [](const std::filesystem::path& part) {
              const Corpus corpus(part);
              return Shards::Content{corpus.info().provenance, corpus.size()};
            }};
  }
  // Writes a shard whose examples say their own numbers.
  void write_shard(Shards& shards, const ShardRange& range) const {
    CorpusWriter shard(shards.place(range), info());
    for (auto i = static_cast<int32_t>(range.first); i < range.last; ++i) shard.add(Row{i}, Row{i, 1});
    shard.finish();
    shards.add(range);
  }
  // Writes the shards that are missing, `most` at most.
  void write_missing(Shards& shards, int64_t shard_examples, size_t most = 100) const {
    const auto missing = shards.missing(shard_examples);
    for (size_t i = 0; i < std::min(most, missing.size()); ++i) write_shard(shards, missing[i]);
  }
  void merge(Shards& shards) const {
    if (!shards.merged()) merge_corpora(shards.parts(), file_, info());
    shards.remove();
  }
  void expect_counting(int32_t examples) const {
    const Corpus corpus(file_);
    ASSERT_EQ(corpus.size(), examples);
    for (int32_t i = 0; i < examples; ++i) EXPECT_THAT(corpus.target(i), ElementsAre(i, 1));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
  }
  static CorpusInfo info() { return {.tokenizer_hash = "abc", .vocabulary = 100, .provenance = {{kJob, "one"}}}; }

  TemporaryDirectory directory_;
  std::filesystem::path file_ = directory_ / "c.h5";
};

TEST_F(CorpusShards, AreMergedInOrder) {
  Shards writer = shards(8);
  EXPECT_THAT(writer.missing(3), ElementsAre(ShardRange{0, 3}, ShardRange{3, 6}, ShardRange{6, 8}));
  write_shard(writer, {6, 8});  // workers are not asked for an order
  write_shard(writer, {0, 3});
  EXPECT_EQ(writer.safe(), 5);
  EXPECT_THAT(writer.missing(3), ElementsAre(ShardRange{3, 6}));
  EXPECT_THROW(writer.remove(), std::logic_error);
  write_shard(writer, {3, 6});
  merge(writer);
  expect_counting(8);
}

TEST_F(CorpusShards, OfAnotherJobOrOtherExamplesAreRefused) {
  {
    Shards writer = shards(4);
    write_missing(writer, 2, 1);
  }
  EXPECT_THAT(error_of([&] { shards(4, "two"); }),
              AllOf(HasSubstr("c.shard-000000000-000000002.h5"), HasSubstr("another job"), HasSubstr("two")));
  std::filesystem::rename(directory_ / "c.shard-000000000-000000002.h5", directory_ / "c.shard-000000000-000000003.h5");
  EXPECT_THAT(error_of([&] { shards(4); }), HasSubstr("other examples than its name says"));
}

TEST_F(CorpusShards, MayHaveAnotherSizeInALaterRun) {
  for (const auto& [shard_examples, count] : {std::pair{4, 2}, std::pair{1, 2}, std::pair{7, 1}}) {
    Shards writer = shards(20);
    write_missing(writer, shard_examples, static_cast<size_t>(count));
  }
  Shards writer = shards(20);
  EXPECT_EQ(writer.safe(), 8 + 2 + 4);  // up to the next multiple of 7
  EXPECT_THAT(writer.missing(3), ElementsAre(ShardRange{14, 15}, ShardRange{15, 18}, ShardRange{18, 20}));
  write_missing(writer, 3);
  merge(writer);
  expect_counting(20);
}

TEST_F(CorpusShards, AreRemovedAfterAKillWhileTheyWereRemoved) {
  const auto shard = directory_ / "c.shard-000000000-000000002.h5";
  {
    Shards writer = shards(6);
    write_missing(writer, 2);
    std::filesystem::copy(shard, directory_ / "kept");
    merge(writer);
  }
  std::filesystem::rename(directory_ / "kept", shard);
  Shards writer = shards(6);
  EXPECT_TRUE(writer.merged());
  EXPECT_EQ(writer.safe(), 6);
  EXPECT_TRUE(writer.missing(2).empty());
  EXPECT_THROW(write_shard(writer, {2, 4}), std::logic_error);
  std::filesystem::remove(directory_ / "c.shard-000000002-000000004.h5");
  merge(writer);
  expect_counting(6);
  EXPECT_FALSE(shards(6, "two").merged());
}

}  // namespace
}  // namespace draftsmith::data
