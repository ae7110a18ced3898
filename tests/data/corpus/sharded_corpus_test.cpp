#include "data/corpus/sharded_corpus.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/support/errors.h"

namespace draftsmith::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Row = std::vector<int32_t>;

CorpusInfo job_info(const std::string& job) {
  return {.tokenizer_hash = "abc", .vocabulary = 100, .provenance = {{kJob, job}}};
}

// Writes a shard whose examples say their own numbers.
void write_shard(ShardedCorpusWriter& writer, const ShardRange& range) {
  writer.write(range, [&](CorpusWriter& shard) {
    for (auto i = static_cast<int32_t>(range.first); i < range.last; ++i) shard.add(Row{i}, Row{i, 1});
  });
}

// Writes the shards that are missing, `most` at most.
void write_missing(ShardedCorpusWriter& writer, int64_t shard_examples, size_t most = 100) {
  const auto missing = writer.missing(shard_examples);
  for (size_t i = 0; i < std::min(most, missing.size()); ++i) write_shard(writer, missing[i]);
}

void expect_counting(const std::filesystem::path& file, int32_t examples) {
  const Corpus corpus(file);
  ASSERT_EQ(corpus.size(), examples);
  for (int32_t i = 0; i < examples; ++i) EXPECT_THAT(corpus.target(i), ElementsAre(i, 1));
}

TEST(ShardedCorpus, MergesItsShardsInOrder) {
  const TemporaryDirectory directory;
  ShardedCorpusWriter writer(directory / "c.h5", job_info("one"), 8);
  EXPECT_THAT(writer.missing(3), ElementsAre(ShardRange{0, 3}, ShardRange{3, 6}, ShardRange{6, 8}));
  write_shard(writer, {6, 8});  // workers are not asked for an order
  write_shard(writer, {0, 3});
  EXPECT_EQ(writer.done(), 5);
  EXPECT_THAT(writer.missing(3), ElementsAre(ShardRange{3, 6}));
  EXPECT_THROW(writer.finish(), std::logic_error);
  write_shard(writer, {3, 6});
  writer.finish({{"tokens_generated", "16"}});
  expect_counting(directory / "c.h5", 8);
  const CorpusInfo info = read_corpus_info(directory / "c.h5");
  EXPECT_EQ(info.provenance.at("tokens_generated"), "16");
  EXPECT_FALSE(info.provenance.contains(ShardRange::kKey));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(ShardedCorpus, RefusesShardsOfAnotherJob) {
  const TemporaryDirectory directory;
  {
    ShardedCorpusWriter writer(directory / "c.h5", job_info("one"), 4);
    write_missing(writer, 2, 1);
  }
  EXPECT_THAT(error_of([&] { ShardedCorpusWriter writer(directory / "c.h5", job_info("two"), 4); }),
              AllOf(HasSubstr("c.shard-000000000-000000002.h5"), HasSubstr("another job"), HasSubstr("two")));
  EXPECT_THAT(error_of([&] { ShardedCorpusWriter writer(directory / "c.h5", job_info("one"), 1); }),
              AllOf(HasSubstr("behind the last example"), HasSubstr("0 to 1"), HasSubstr("0-2")));
}

TEST(ShardedCorpus, GoesOnWithShardsOfAnotherSize) {
  const TemporaryDirectory directory;
  for (const auto& [shard_examples, shards] : {std::pair{4, 2}, std::pair{1, 2}, std::pair{7, 1}}) {
    ShardedCorpusWriter writer(directory / "c.h5", job_info("one"), 20);
    write_missing(writer, shard_examples, static_cast<size_t>(shards));
  }
  ShardedCorpusWriter writer(directory / "c.h5", job_info("one"), 20);
  EXPECT_EQ(writer.done(), 8 + 2 + 4);  // up to the next multiple of 7
  EXPECT_THAT(writer.missing(3), ElementsAre(ShardRange{14, 15}, ShardRange{15, 18}, ShardRange{18, 20}));
  int64_t targets = 0;
  writer.read_targets([&](std::span<const int32_t> ids) { EXPECT_EQ(ids[0], targets++); });
  EXPECT_EQ(targets, 14);
  write_missing(writer, 3);
  writer.finish();
  expect_counting(directory / "c.h5", 20);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(ShardedCorpus, KilledWhileRemovingShardsIsDone) {
  const TemporaryDirectory directory;
  const auto shard = directory / "c.shard-000000000-000000002.h5";
  {
    ShardedCorpusWriter writer(directory / "c.h5", job_info("one"), 6);
    write_missing(writer, 2);
    std::filesystem::copy(shard, directory / "kept");
    writer.finish({{"note", "merged"}});
  }
  std::filesystem::rename(directory / "kept", shard);
  ShardedCorpusWriter writer(directory / "c.h5", job_info("one"), 6);
  EXPECT_EQ(writer.done(), 6);
  EXPECT_TRUE(writer.missing(2).empty());
  EXPECT_THROW(write_shard(writer, {2, 4}), std::logic_error);
  int64_t targets = 0;
  writer.read_targets([&](std::span<const int32_t>) { ++targets; });
  EXPECT_EQ(targets, 6);
  writer.finish();
  expect_counting(directory / "c.h5", 6);
  EXPECT_EQ(read_corpus_info(directory / "c.h5").provenance.at("note"), "merged");
  EXPECT_FALSE(std::filesystem::exists(shard));
}

}  // namespace
}  // namespace draftsmith::data
