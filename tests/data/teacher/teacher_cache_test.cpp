// Teacher caches: what is written is read back, and whatever does not fit is refused by name.
#include "data/teacher/teacher_cache.h"

#include <span>
#include <vector>

#include <gmock/gmock.h>

#include "base/files.h"
#include "data/hdf5/hdf5.h"
#include "tests/support/errors.h"

namespace draftsmith::data {
namespace {

// Bits of halves whose exponentials add up to 1: log(1/2), log(1/4), log(1/8).
constexpr uint16_t kHalf = 0xb98c, kQuarter = 0xbd8c, kEighth = 0xc029;
constexpr uint16_t kLowest = 0xfbff;  // -65504

TeacherCacheInfo info_of(int64_t k) {
  TeacherCacheInfo info{.k = k, .vocabulary = 4, .tokenizer_hash = "aaaa", .teacher_hash = "bbbb"};
  info.corpus_hash = "cccc";
  info.provenance = {{"corpus", "some"}};
  return info;
}

// Values of one example of a top-2 cache: `positions` times ids 1 and 3.
struct CacheExample {
  explicit CacheExample(size_t positions) : labels(positions, kEighth), tails(positions, kEighth) {
    for (size_t i = 0; i < 2 * positions; ++i) {
      ids.push_back(i % 2 == 0 ? 1 : 3);
      log_probs.push_back(i % 2 == 0 ? kHalf : kQuarter);
    }
  }
  TeacherRows rows() const { return {ids, log_probs, labels, tails}; }

  std::vector<int32_t> ids;
  std::vector<uint16_t> log_probs, labels, tails;
};

void write_cache(const std::filesystem::path& file, const TeacherRows& rows, int64_t k = 2) {
  write_teacher_cache(file, info_of(k), std::span(&rows, 1));
}

TEST(TeacherCache, GivesBackWhatWasWritten) {
  const TemporaryDirectory directory;
  const CacheExample first(2), second(0), third(1);
  write_teacher_cache(directory / "t.h5", info_of(2), std::vector{first.rows(), second.rows(), third.rows()});
  const TeacherCache cache(directory / "t.h5");
  EXPECT_EQ(cache.info().examples, 3);
  EXPECT_EQ(cache.info().positions, 3);
  EXPECT_EQ(cache.info().teacher_hash, "bbbb");
  EXPECT_EQ(cache.info().provenance.at("corpus"), "some");
  EXPECT_FALSE(cache.info().whole());
  EXPECT_EQ(cache.info().bytes_per_position(), 2 * 6 + 4);
  EXPECT_EQ(cache.positions(1), 0);
  EXPECT_THAT(cache.rows(0).ids, ElementsAre(1, 3, 1, 3));
  EXPECT_THAT(cache.rows(2).log_probs, ElementsAre(kHalf, kQuarter));
  EXPECT_THAT(cache.rows(2).label_log_probs, ElementsAre(kEighth));
  EXPECT_THAT(cache.rows(2).tail_log_mass, ElementsAre(kEighth));
}

TEST(TeacherCache, KeepsWholeDistributionsWithoutIds) {
  const TemporaryDirectory directory;
  const std::vector<uint16_t> log_probs = {kHalf, kQuarter, kQuarter, kLowest};
  write_cache(directory / "t.h5", {.log_probs = log_probs}, 4);
  const TeacherCache cache(directory / "t.h5");
  EXPECT_TRUE(cache.info().whole());
  EXPECT_THAT(cache.rows(0).log_probs, ElementsAre(kHalf, kQuarter, kQuarter, kLowest));
  EXPECT_TRUE(cache.rows(0).ids.empty());
  EXPECT_EQ(cache.info().bytes_per_position(), 8);
}

constexpr BFloat16 kOne{0x3f80}, kTwo{0x4000}, kInfinity{0x7f80};

// Two examples, of three and one rows of states.
TeacherCacheInfo write_states(const std::filesystem::path& file, const std::vector<BFloat16>& first) {
  TeacherCacheInfo info = info_of(2);
  info.states = {.layers = {1, 3}, .width = 2};
  const CacheExample one(2), two(1);
  std::vector rows{one.rows(), two.rows()};
  const std::vector<BFloat16> second{kTwo, kOne};
  rows[0].states = first;
  rows[1].states = second;
  write_teacher_cache(file, info, rows);
  return info;
}

TEST(TeacherCache, HoldsFiniteStates) {
  const TemporaryDirectory directory;
  const TeacherCacheInfo info = write_states(directory / "t.h5", std::vector(6, kOne));
  const TeacherCache cache(directory / "t.h5");
  EXPECT_THAT(cache.rows(0).states, ElementsAre(kOne, kOne, kOne, kOne, kOne, kOne));
  EXPECT_THAT(cache.rows(1).states, ElementsAre(kTwo, kOne));
  EXPECT_THAT(describe_teacher_cache(cache.info()), HasSubstr("layers 1, 3 in 4 rows of 2, 16 bytes in all"));
  merge_teacher_caches({directory / "t.h5"}, directory / "merged.h5", info);
  EXPECT_EQ(sha256_file(directory / "t.h5"), sha256_file(directory / "merged.h5"));

  write_states(directory / "t.h5", {kOne, kOne, kOne, kInfinity, kOne, kOne});
  const TeacherCache damaged(directory / "t.h5");
  EXPECT_EQ(damaged.rows(1).states.size(), 2U) << "each example is checked when it is read";
  EXPECT_THAT(error_of([&] { damaged.rows(0); }),
              AllOf(HasSubstr("t.h5"), HasSubstr("/states/rows: value 3, of example 0")));
  std::filesystem::resize_file(directory / "t.h5", std::filesystem::file_size(directory / "t.h5") - 1);
  EXPECT_THAT(error_of([&] { TeacherCache{directory / "t.h5"}; }), HasSubstr("t.h5"));
}

TEST(TeacherCache, RefusesDamagedValuesByName) {
  struct Damage {
    void (*change)(CacheExample&);
    const char* message;
  };
  const std::vector<Damage> damages{
      {[](CacheExample& e) { e.ids[3] = 4; }, "an id from 2 to 3, ascending"},
      {[](CacheExample& e) { e.ids[2] = 3; }, "/teacher/ids[3]"},                   // twice
      {[](CacheExample& e) { e.log_probs[1] = 0xfc00; }, "/teacher/log_probs[1]"},  // infinite
      {[](CacheExample& e) { e.tails[2] = 0x7e00; }, "/teacher/tail_log_mass[2]"},  // not a number
      {[](CacheExample& e) { e.labels[0] = 0xfe00; }, "/teacher/label_log_probs[0]"},
      {[](CacheExample& e) { e.tails[1] = kHalf; }, "probability at position 1"},         // too much
      {[](CacheExample& e) { e.log_probs[4] = kEighth; }, "probability at position 2"}};  // too little
  for (const Damage& damage : damages) {
    const TemporaryDirectory directory;
    CacheExample example(3);
    damage.change(example);
    write_cache(directory / "t.h5", example.rows());
    EXPECT_THAT(error_of([&] { TeacherCache{directory / "t.h5"}; }),
                AllOf(HasSubstr("t.h5"), HasSubstr(damage.message)));
  }
}

TEST(TeacherCache, RefusesTruncatedFiles) {
  const TemporaryDirectory directory;
  write_cache(directory / "t.h5", CacheExample(1000).rows());
  const auto size = std::filesystem::file_size(directory / "t.h5");
  for (const auto left : {size - 1, size / 2, uintmax_t{100}, uintmax_t{0}}) {
    std::filesystem::copy_file(directory / "t.h5", directory / "cut.h5",
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(directory / "cut.h5", left);
    EXPECT_THAT(error_of([&] { TeacherCache{directory / "cut.h5"}; }), HasSubstr("cut.h5")) << left;
    EXPECT_FALSE(has_hdf5_format(directory / "cut.h5", kTeacherCacheFormat));
  }
}

// A file of attributes and offsets, but for one attribute.
void write_by_hand(const std::filesystem::path& file, const std::string& left_out, int64_t version, int64_t positions) {
  Hdf5Writer writer(file);
  const std::vector<int64_t> offsets = {0, 2};
  writer.write_array("/teacher/offsets", std::span<const int64_t>(offsets));
  writer.set_attribute("/", "format", left_out == "format" ? "another" : "draftsmith teacher cache");
  writer.set_attribute("/", "format_version", version);
  writer.set_attribute("/", "k", int64_t{2});
  writer.set_attribute("/", "vocabulary", int64_t{4});
  writer.set_attribute("/", "examples", int64_t{1});
  writer.set_attribute("/", "positions", positions);
  writer.set_attribute("/", "temperature", left_out == "temperature" ? "warm" : "1");
  for (const char* hash : {"tokenizer_hash", "teacher_hash", "corpus_hash"}) {
    if (left_out != hash) writer.set_attribute("/", hash, "aaaa");
  }
  writer.finish();
}

TEST(TeacherCache, RefusesFilesThatAreNoneOrDoNotFitTogether) {
  const TemporaryDirectory directory;
  const auto error = [&](const std::string& left_out, int64_t version = 1, int64_t positions = 2) {
    write_by_hand(directory / "t.h5", left_out, version, positions);
    return error_of([&] { TeacherCache{directory / "t.h5"}; });
  };
  EXPECT_THAT(error(""), HasSubstr("no dataset /teacher/log_probs"));
  EXPECT_THAT(error("format"), HasSubstr("not a teacher cache"));
  EXPECT_FALSE(has_hdf5_format(directory / "t.h5", kTeacherCacheFormat));
  EXPECT_THAT(error("teacher_hash"), HasSubstr("no attribute teacher_hash"));
  EXPECT_THAT(error("temperature"), AllOf(HasSubstr("a number above 0"), HasSubstr("warm")));
  EXPECT_THAT(error("", 2), HasSubstr("another format version"));
  EXPECT_THAT(error("", 1, 3), HasSubstr("/teacher/offsets"));
  EXPECT_THAT(error("", 1, -1), HasSubstr("positions"));
}

TEST(TeacherCache, CorpusHashIsOfItsTokensAlone) {
  const TemporaryDirectory directory;
  const auto hash_of = [&](const std::vector<int32_t>& source, const std::vector<int32_t>& target,
                           const std::string& note) {
    CorpusWriter writer(directory / "c.h5", {.tokenizer_hash = "a", .vocabulary = 9, .provenance = {{"note", note}}});
    writer.add(source, target);
    writer.finish();
    return corpus_hash(Corpus(directory / "c.h5"));
  };
  const std::string hash = hash_of({1, 2}, {3}, "x");
  EXPECT_EQ(hash_of({1, 2}, {3}, "y"), hash);
  EXPECT_NE(hash_of({1}, {2, 3}, "x"), hash);
  EXPECT_NE(hash_of({1, 2}, {4}, "x"), hash);
}

TEST(TeacherCache, MergedPartsEqualACacheWrittenAtOnce) {
  const TemporaryDirectory directory;
  const CacheExample one(1), two(2);
  write_teacher_cache(directory / "whole.h5", info_of(2), std::vector{one.rows(), two.rows(), one.rows()});
  write_teacher_cache(directory / "a.h5", info_of(2), std::vector{one.rows(), two.rows()});
  write_teacher_cache(directory / "b.h5", info_of(2), std::vector{one.rows()});
  merge_teacher_caches({directory / "a.h5", directory / "b.h5"}, directory / "merged.h5", info_of(2));
  EXPECT_EQ(sha256_file(directory / "whole.h5"), sha256_file(directory / "merged.h5"));
  EXPECT_EQ(TeacherCache(directory / "merged.h5").info().positions, 4);
}

}  // namespace
}  // namespace draftsmith::data
