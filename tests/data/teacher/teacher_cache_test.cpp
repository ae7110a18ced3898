// Teacher caches: what is written is read back, and whatever does not fit is refused by name.
#include "data/teacher/teacher_cache.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/util.h"
#include "data/hdf5/hdf5.h"
#include "tests/data/teacher/teacher_cache_fixtures.h"
#include "tests/support/errors.h"

namespace draftsmith::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TeacherCache, GivesBackWhatWasWritten) {
  const TemporaryDirectory directory;
  const CacheExample first(2), second(0), third(1);
  TeacherCacheWriter writer(directory / "t.h5", info_of(2, 3));
  for (const CacheExample* example : {&first, &second, &third}) writer.add(example->rows());
  writer.finish({{"note", "three"}});
  const TeacherCache cache(directory / "t.h5");
  EXPECT_EQ(cache.info().examples, 3);
  EXPECT_EQ(cache.info().positions, 3);
  EXPECT_EQ(cache.info().teacher_hash, "bbbb");
  EXPECT_EQ(cache.info().provenance.at("note"), "three");
  EXPECT_FALSE(cache.info().whole());
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
  EXPECT_FALSE(Hdf5Reader(directory / "t.h5").has("/teacher/ids"));
}

TEST(TeacherCache, BytesOfAPositionAreThoseOfTheFile) {
  EXPECT_EQ(teacher_bytes_per_position(2, 4), 2 * 6 + 4);
  EXPECT_EQ(teacher_bytes_per_position(4, 4), 8);
  const TemporaryDirectory directory;
  write_cache(directory / "small.h5", CacheExample(1).rows());
  write_cache(directory / "large.h5", CacheExample(100001).rows());
  const auto grown =
      std::filesystem::file_size(directory / "large.h5") - std::filesystem::file_size(directory / "small.h5");
  EXPECT_NEAR(static_cast<double>(grown) / 100000, 16, 0.1);
}

TEST(TeacherCache, KeepsTheTruncationError) {
  const TemporaryDirectory directory;
  TruncationError error{.positions = 9, .student = "s", .exact = {1, 2, 3, 4}};
  error.rows = {{.k = 2, .tail_mass = 0.5, .losses = {.5, 1, 1.5, 2}},
                {.k = 4, .tail_mass = 0, .losses = {1, 2, 3, 4}}};
  const CacheExample example(1);
  TeacherCacheWriter writer(directory / "t.h5", info_of(2, 1));
  writer.add(example.rows());
  writer.finish({}, error);
  const TeacherCacheInfo info = read_teacher_cache_info(directory / "t.h5");
  ASSERT_TRUE(info.truncation.has_value());
  EXPECT_EQ(info.truncation->positions, 9);
  EXPECT_EQ(info.truncation->student, "s");
  EXPECT_THAT(info.truncation->exact, ElementsAre(1, 2, 3, 4));
  ASSERT_EQ(info.truncation->rows.size(), 2u);
  EXPECT_EQ(info.truncation->rows[0].k, 2);
  EXPECT_EQ(info.truncation->rows[0].tail_mass, 0.5);
  EXPECT_THAT(info.truncation->rows[0].losses, ElementsAre(.5, 1, 1.5, 2));
  EXPECT_THAT(describe_teacher_cache(info), AllOf(HasSubstr("2 of 4 ids a position"), HasSubstr("16 bytes each"),
                                                  HasSubstr("-50.00%"), HasSubstr("+0.00%")));
}

// Where a file that was written well is damaged afterwards, by values that the writer does not look at.
struct CacheDamage {
  const char* what;
  void (*change)(CacheExample&);
  const char* message;
};

class DamagedTeacherCache : public testing::TestWithParam<CacheDamage> {};

TEST_P(DamagedTeacherCache, IsRefusedByName) {
  const TemporaryDirectory directory;
  CacheExample example(3);
  GetParam().change(example);
  write_cache(directory / "t.h5", example.rows());
  EXPECT_THAT(error_of([&] { TeacherCache{directory / "t.h5"}; }),
              AllOf(HasSubstr("t.h5"), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Values, DamagedTeacherCache,
    testing::Values(
        CacheDamage{"NegativeId", [](CacheExample& e) { e.ids[2] = -1; }, "/teacher/ids[2]"},
        CacheDamage{"IdBeyondTheVocabulary", [](CacheExample& e) { e.ids[3] = 4; }, "an id from 2 to 3, ascending"},
        CacheDamage{"IdTwice", [](CacheExample& e) { e.ids[2] = 3; }, "/teacher/ids[3]"},
        CacheDamage{"InfiniteLogProbability", [](CacheExample& e) { e.log_probs[1] = 0xfc00; },
                    "/teacher/log_probs[1]"},
        CacheDamage{"PositiveLogProbability", [](CacheExample& e) { e.log_probs[1] = 0x0001; },
                    "/teacher/log_probs[1]"},
        CacheDamage{"NotANumberInTheTail", [](CacheExample& e) { e.tails[2] = 0x7e00; }, "/teacher/tail_log_mass[2]"},
        CacheDamage{"NotANumberForALabel", [](CacheExample& e) { e.labels[0] = 0xfe00; },
                    "/teacher/label_log_probs[0]"},
        CacheDamage{"TooMuchMass", [](CacheExample& e) { e.tails[1] = kHalf; }, "probability at position 1"},
        CacheDamage{"TooLittleMass", [](CacheExample& e) { e.log_probs[4] = kEighth; }, "probability at position 2"}),
    [](const auto& damage) { return damage.param.what; });

TEST(TeacherCache, RefusesTruncatedFiles) {
  const TemporaryDirectory directory;
  write_cache(directory / "t.h5", CacheExample(1000).rows());
  const auto size = std::filesystem::file_size(directory / "t.h5");
  for (const auto left : {size - 1, size / 2, uintmax_t{100}, uintmax_t{0}}) {
    std::filesystem::copy_file(directory / "t.h5", directory / "cut.h5",
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(directory / "cut.h5", left);
    EXPECT_THAT(error_of([&] { TeacherCache{directory / "cut.h5"}; }), HasSubstr("cut.h5")) << left;
    EXPECT_FALSE(is_teacher_cache(directory / "cut.h5"));
  }
}

// A file whose attributes and datasets are as given, but for one of them.
void write_by_hand(const std::filesystem::path& file, const std::string& left_out, int64_t version, int64_t positions) {
  Hdf5Writer writer(file, 8);
  const CacheExample example(2);
  const std::vector<int64_t> offsets = {0, 2};
  const auto wanted = [&](const char* name) { return left_out != name; };
  const size_t ids = writer.create_plain("/teacher/ids", Hdf5Type::kInt32, 2, 2);
  writer.append(ids, std::span<const int32_t>(example.ids));
  if (wanted("log_probs")) {
    const size_t logs = writer.create_plain("/teacher/log_probs", Hdf5Type::kFloat16, 2, 2);
    writer.append(logs, std::span<const uint16_t>(example.log_probs));
  }
  writer.write_array("/teacher/label_log_probs", std::span<const uint16_t>(example.labels));
  writer.write_array("/teacher/tail_log_mass", std::span<const uint16_t>(example.tails));
  writer.write_array("/teacher/offsets", std::span<const int64_t>(offsets));
  if (wanted("format")) writer.set_attribute("/", "format", "draftsmith teacher cache");
  writer.set_attribute("/", "format_version", version);
  writer.set_attribute("/", "k", int64_t{2});
  writer.set_attribute("/", "vocabulary", int64_t{4});
  writer.set_attribute("/", "examples", int64_t{1});
  writer.set_attribute("/", "positions", positions);
  writer.set_attribute("/", "temperature", wanted("temperature") ? "1" : "warm");
  for (const char* hash : {"tokenizer_hash", "teacher_hash", "corpus_hash"}) {
    if (wanted(hash)) writer.set_attribute("/", hash, "aaaa");
  }
  writer.finish();
}

TEST(TeacherCache, RefusesFilesThatAreNoneOrDoNotFitTogether) {
  const TemporaryDirectory directory;
  const auto error = [&](const std::string& left_out, int64_t version = 1, int64_t positions = 2) {
    write_by_hand(directory / "t.h5", left_out, version, positions);
    return error_of([&] { TeacherCache{directory / "t.h5"}; });
  };
  EXPECT_EQ(error(""), "no error");
  EXPECT_THAT(error("format"), HasSubstr("not a teacher cache"));
  EXPECT_THAT(error("teacher_hash"), HasSubstr("no attribute teacher_hash"));
  EXPECT_THAT(error("log_probs"), HasSubstr("no dataset /teacher/log_probs"));
  EXPECT_THAT(error("temperature"), AllOf(HasSubstr("a number above 0"), HasSubstr("warm")));
  EXPECT_THAT(error("", 2), HasSubstr("another format version"));
  EXPECT_THAT(error("", 1, 3), HasSubstr("/teacher/offsets"));
  EXPECT_THAT(error("", 1, -1), HasSubstr("positions"));
  EXPECT_THAT(error_of([&] { TeacherCache{directory / "absent.h5"}; }), HasSubstr("absent.h5"));
  CorpusWriter(directory / "corpus.h5", {.tokenizer_hash = "aaaa", .vocabulary = 4}).finish();
  EXPECT_THAT(error_of([&] { TeacherCache{directory / "corpus.h5"}; }), HasSubstr("not a teacher cache"));
  EXPECT_FALSE(is_teacher_cache(directory / "corpus.h5"));
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

TEST(Half, IsConvertedExactly) {
  EXPECT_EQ(half_to_float(0x3c00), 1.0f);
  EXPECT_EQ(half_to_float(0xc000), -2.0f);
  EXPECT_EQ(half_to_float(kLowest), -65504.0f);
  EXPECT_EQ(half_to_float(0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(half_to_float(0x8400), -std::ldexp(1.0f, -14));
  EXPECT_TRUE(std::isinf(half_to_float(0x7c00)));
  EXPECT_TRUE(std::isnan(half_to_float(0x7e00)));
  EXPECT_NEAR(half_to_float(kHalf), std::log(.5f), 1e-3);
}

}  // namespace
}  // namespace draftsmith::data
