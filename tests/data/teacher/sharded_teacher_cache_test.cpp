// Teacher caches in shards: they go on where they stopped, and shards of another job are refused by name.
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/sha256.h"
#include "tests/data/teacher/teacher_cache_fixtures.h"
#include "tests/support/errors.h"

namespace draftsmith::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Writes a shard whose even examples have one position, the odd ones two.
void add_shard(ShardedTeacherCache& writer, const ShardRange& range) {
  const CacheExample one(1), two(2);
  std::vector<TeacherRows> rows;
  for (int64_t i = range.first; i < range.last; ++i) rows.push_back(i % 2 == 0 ? one.rows() : two.rows());
  writer.add_shard(range, rows);
}

TEST(ShardedTeacherCache, GoesOnWithTheMissingShardsToTheSameFile) {
  const TemporaryDirectory directory;
  const auto write = [&](const std::string& name, bool killed) {
    {
      ShardedTeacherCache writer(directory / name, info_of(2, 0), 7);
      if (!killed) add_shard(writer, {0, 4});
      add_shard(writer, {4, 7});
      if (!killed) writer.finish({}, {});
    }
    if (!killed) return;
    ShardedTeacherCache writer(directory / name, info_of(2, 0), 7);
    EXPECT_EQ(writer.done(), 3);
    EXPECT_EQ(writer.missing(4), (std::vector{ShardRange{0, 4}}));
    EXPECT_THROW(writer.finish({}, {}), std::logic_error);
    add_shard(writer, {0, 4});
    writer.finish({}, {});
  };
  write("whole.h5", false);
  write("killed.h5", true);
  EXPECT_EQ(sha256_file(directory / "whole.h5"), sha256_file(directory / "killed.h5"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 2);
  const TeacherCache cache(directory / "killed.h5");
  EXPECT_EQ(cache.info().examples, 7);
  EXPECT_EQ(cache.info().positions, 10);
}

TEST(ShardedTeacherCache, RefusesShardsOfAnotherJob) {
  const TemporaryDirectory directory;
  {
    ShardedTeacherCache writer(directory / "t.h5", info_of(2, 0), 2);
    add_shard(writer, {0, 2});
  }
  const auto error = [&](const TeacherCacheInfo& info) {
    return error_of([&] { ShardedTeacherCache(directory / "t.h5", info, 2); });
  };
  const auto changed = [](const auto& change) {
    TeacherCacheInfo info = info_of(2, 0);
    change(info);
    return info;
  };
  EXPECT_THAT(error(changed([](auto& info) { info.teacher_hash = "dddd"; })),
              AllOf(HasSubstr("shard-000000000-000000002"), HasSubstr("its teacher differs"), HasSubstr("dddd"),
                    HasSubstr("bbbb")));
  EXPECT_THAT(error(changed([](auto& info) { info.corpus_hash = "dddd"; })),
              AllOf(HasSubstr("its corpus differs"), HasSubstr("dddd"), HasSubstr("cccc")));
  EXPECT_THAT(error(changed([](auto& info) { info.temperature = 2.5; })),
              AllOf(HasSubstr("its temperature differs"), HasSubstr("2.5, as the job"), HasSubstr("1")));
  EXPECT_THAT(error(info_of(3, 0)),
              AllOf(HasSubstr("its number of ids differs"), HasSubstr("3 of 4"), HasSubstr("2 of 4")));
  EXPECT_THAT(error(info_of(2, 0, "job two")),
              AllOf(HasSubstr("its provenance differs"), HasSubstr("job two"), HasSubstr("job one")));
  EXPECT_EQ(error(info_of(2, 0)), "no error");
}

TEST(ShardedTeacherCache, AMergedCacheNeedsNothingMore) {
  const TemporaryDirectory directory;
  {
    ShardedTeacherCache writer(directory / "t.h5", info_of(2, 0), 2);
    add_shard(writer, {0, 2});
    std::filesystem::copy(directory / "t.shard-000000000-000000002.h5", directory / "kept");
    writer.finish({}, {});
  }
  std::filesystem::rename(directory / "kept",
                          directory / "t.shard-000000000-000000002.h5");  // killed while removing it
  ShardedTeacherCache writer(directory / "t.h5", info_of(2, 0), 2);
  EXPECT_TRUE(writer.merged());
  EXPECT_EQ(writer.done(), 2);
  writer.finish({}, {});
  EXPECT_FALSE(std::filesystem::exists(directory / "t.shard-000000000-000000002.h5"));
  EXPECT_EQ(TeacherCache(directory / "t.h5").info().examples, 2);
  ShardedTeacherCache another(directory / "t.h5", info_of(2, 0, "job two"), 2);
  EXPECT_FALSE(another.merged());
}

TEST(ShardedTeacherCache, TheSpaceItStillTakesIsWithoutTheShardsThatAreThere) {
  const TeacherCacheInfo info = info_of(2, 0);
  EXPECT_EQ(teacher_cache_space(info, 100, 0), 2 * 100 * 16);  // shards, and the file beside them
  EXPECT_EQ(teacher_cache_space(info, 100, 60), (40 + 100) * 16);
  EXPECT_EQ(teacher_cache_space(info, 100, 100), 100 * 16);
}

}  // namespace
}  // namespace draftsmith::data
