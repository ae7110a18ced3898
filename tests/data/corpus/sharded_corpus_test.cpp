#include "data/corpus/sharded_corpus.h"

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

CorpusInfo job_info(const std::string& job, const std::string& teacher = "t") {
  return {.tokenizer_hash = "abc", .vocabulary = 100, .provenance = {{kJob, job}, {"teacher", teacher}}};
}

// Adds the examples from where the writer stands to `end`.
void add_until(ShardedCorpusWriter& writer, int64_t end) {
  for (auto i = static_cast<int32_t>(writer.done()); i < end; ++i) writer.add(Row{i}, Row{i, 1});
}

void expect_counting(const std::filesystem::path& file, int32_t examples) {
  const Corpus corpus(file);
  ASSERT_EQ(corpus.size(), examples);
  for (int32_t i = 0; i < examples; ++i) EXPECT_THAT(corpus.target(i), ElementsAre(i, 1));
}

TEST(ShardedCorpus, MergesItsShardsInOrder) {
  const TemporaryDirectory directory;
  ShardedCorpusWriter writer(directory / "c.h5", {.tokenizer_hash = "abc", .vocabulary = 100}, 3);
  for (int32_t i = 0; i < 8; ++i) writer.add(Row{i}, Row{i, 1});
  EXPECT_EQ(writer.done(), 8);
  EXPECT_EQ(writer.safe(), 6);
  writer.finish({{"tokens_generated", "16"}});
  const Corpus corpus(directory / "c.h5");
  ASSERT_EQ(corpus.size(), 8);
  for (int32_t i = 0; i < 8; ++i) EXPECT_THAT(corpus.target(i), ElementsAre(i, 1));
  EXPECT_EQ(corpus.info().provenance.at("tokens_generated"), "16");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(ShardedCorpus, GoesOnAfterTheLastWholeShard) {
  const TemporaryDirectory directory;
  const CorpusInfo info = {.tokenizer_hash = "abc", .vocabulary = 100, .provenance = {{"teacher", "t"}}};
  {
    ShardedCorpusWriter writer(directory / "c.h5", info, 3);
    for (int32_t i = 0; i < 8; ++i) writer.add(Row{i}, Row{i, 1});
  }  // killed: examples 6 and 7 are lost
  ShardedCorpusWriter writer(directory / "c.h5", info, 3);
  EXPECT_EQ(writer.done(), 6);
  for (auto i = static_cast<int32_t>(writer.done()); i < 10; ++i) writer.add(Row{i}, Row{i, 1});
  writer.finish();
  const Corpus corpus(directory / "c.h5");
  ASSERT_EQ(corpus.size(), 10);
  for (int32_t i = 0; i < 10; ++i) EXPECT_THAT(corpus.source(i), ElementsAre(i));
}

TEST(ShardedCorpus, RefusesShardsOfAnotherJob) {
  const TemporaryDirectory directory;
  const CorpusInfo info = {.tokenizer_hash = "abc", .vocabulary = 100, .provenance = {{"teacher", "t"}}};
  {
    ShardedCorpusWriter writer(directory / "c.h5", info, 2);
    for (int32_t i = 0; i < 2; ++i) writer.add(Row{i}, Row{i});
  }
  CorpusInfo other = info;
  other.provenance["teacher"] = "another";
  EXPECT_THAT(error_of([&] { ShardedCorpusWriter writer(directory / "c.h5", other, 2); }),
              AllOf(HasSubstr("c.shard-00000.h5"), HasSubstr("provenance")));
  other = info;
  other.tokenizer_hash = "xyz";
  EXPECT_THAT(error_of([&] { ShardedCorpusWriter writer(directory / "c.h5", other, 2); }), HasSubstr("tokenizer"));
}

TEST(ShardedCorpus, TheJobAloneTellsItsShards) {
  const TemporaryDirectory directory;
  {
    ShardedCorpusWriter writer(directory / "c.h5", job_info("one", "work/target"), 2);
    add_until(writer, 4);
  }
  EXPECT_EQ(ShardedCorpusWriter(directory / "c.h5", job_info("one", "./work/target"), 2).done(), 4);
  EXPECT_THAT(error_of([&] { ShardedCorpusWriter writer(directory / "c.h5", job_info("two"), 2); }),
              AllOf(HasSubstr("c.shard-00000.h5"), HasSubstr("provenance")));
}

TEST(ShardedCorpus, TakesShardsOfVersionsThatNamedNoJob) {
  const TemporaryDirectory directory;
  {
    ShardedCorpusWriter writer(directory / "c.h5",
                               {.tokenizer_hash = "abc", .vocabulary = 100, .provenance = {{"teacher", "old"}}}, 2);
    add_until(writer, 2);
  }
  ShardedCorpusWriter writer(directory / "c.h5", job_info("one"), 2);
  EXPECT_EQ(writer.done(), 2);
  add_until(writer, 5);
  writer.finish();
  expect_counting(directory / "c.h5", 5);
}

TEST(ShardedCorpus, GoesOnWithShardsOfAnotherSize) {
  const TemporaryDirectory directory;
  for (const auto& [shard_examples, end] : {std::pair{4, 8}, std::pair{1, 10}, std::pair{7, 19}}) {
    ShardedCorpusWriter writer(directory / "c.h5", job_info("one"), shard_examples);
    add_until(writer, end);
  }
  ShardedCorpusWriter writer(directory / "c.h5", job_info("one"), 3);
  EXPECT_EQ(writer.done(), 8 + 2 + 7);
  int64_t targets = 0;
  writer.read_targets([&](std::span<const int32_t> ids) { EXPECT_EQ(ids[0], targets++); });
  EXPECT_EQ(targets, 17);
  add_until(writer, 20);
  writer.finish();
  expect_counting(directory / "c.h5", 20);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(ShardedCorpus, KilledWhileRemovingShardsIsDone) {
  const TemporaryDirectory directory;
  {
    ShardedCorpusWriter writer(directory / "c.h5", job_info("one"), 2);
    add_until(writer, 4);
    std::filesystem::copy(directory / "c.shard-00000.h5", directory / "kept");
    add_until(writer, 6);
    writer.finish({{"note", "merged"}});
  }
  std::filesystem::rename(directory / "kept", directory / "c.shard-00000.h5");
  ShardedCorpusWriter writer(directory / "c.h5", job_info("one"), 2);
  EXPECT_EQ(writer.done(), 6);
  EXPECT_THROW(writer.add(Row{1}, Row{1}), std::logic_error);
  int64_t targets = 0;
  writer.read_targets([&](std::span<const int32_t>) { ++targets; });
  EXPECT_EQ(targets, 6);
  writer.finish();
  expect_counting(directory / "c.h5", 6);
  EXPECT_EQ(read_corpus_info(directory / "c.h5").provenance.at("note"), "merged");
  EXPECT_FALSE(std::filesystem::exists(directory / "c.shard-00000.h5"));
}

TEST(ShardedCorpus, ReplacesAMergedCorpusOfAnotherJob) {
  const TemporaryDirectory directory;
  {
    ShardedCorpusWriter writer(directory / "c.h5", job_info("one"), 2);
    add_until(writer, 6);
    writer.finish();
  }
  ShardedCorpusWriter writer(directory / "c.h5", job_info("two"), 2);
  EXPECT_EQ(writer.done(), 0);
  add_until(writer, 3);
  writer.finish();
  expect_counting(directory / "c.h5", 3);
}

}  // namespace
}  // namespace draftsmith::data
