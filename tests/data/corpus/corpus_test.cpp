#include "data/corpus/corpus.h"

#include <limits>

#include <gmock/gmock.h>

#include "base/files.h"
#include "data/hdf5/hdf5.h"
#include "tests/data/small_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::data {
namespace {

using Row = std::vector<int32_t>;

std::filesystem::path write_corpus(const std::filesystem::path& file, const std::vector<std::pair<Row, Row>>& rows) {
  CorpusWriter writer(file, {.tokenizer_hash = "abc", .vocabulary = 100, .provenance = {{"teacher", "none"}}});
  for (const auto& [source, target] : rows) writer.add(source, target);
  writer.finish();
  return file;
}

TEST(Corpus, ReadsBackWhatWasWritten) {
  const TemporaryDirectory directory;
  const auto file = write_corpus(directory / "c.h5", {{{3, 4, 1}, {5, 1}}, {{}, {6, 7, 8, 1}}, {{9, 1}, {}}});
  const Corpus corpus(file);
  ASSERT_EQ(corpus.size(), 3);
  EXPECT_THAT(corpus.source(0), ElementsAre(3, 4, 1));
  EXPECT_TRUE(corpus.source(1).empty());
  EXPECT_THAT(corpus.target(1), ElementsAre(6, 7, 8, 1));
  EXPECT_TRUE(corpus.target(2).empty());
  EXPECT_EQ(corpus.info().tokenizer_hash, "abc");
  EXPECT_EQ(corpus.info().vocabulary, 100);
  EXPECT_EQ(corpus.info().source_tokens, 5);
  EXPECT_EQ(corpus.info().target_tokens, 6);
  EXPECT_EQ(corpus.info().provenance.at("teacher"), "none");
  EXPECT_EQ(read_corpus_info(file).examples, 3);
}

TEST(Corpus, NothingAppearsWithoutFinish) {
  const TemporaryDirectory directory;
  {
    CorpusWriter writer(directory / "c.h5", {.tokenizer_hash = "abc", .vocabulary = 100});
    writer.add(Row{1}, Row{2});
    EXPECT_FALSE(std::filesystem::exists(directory / "c.h5"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Corpus, WriterRefusesIdsOutsideTheVocabulary) {
  const TemporaryDirectory directory;
  CorpusWriter writer(directory / "c.h5", {.tokenizer_hash = "abc", .vocabulary = 100});
  EXPECT_THROW(writer.add(Row{100}, Row{1}), std::logic_error);
  EXPECT_THROW(writer.add(Row{1}, Row{-1}), std::logic_error);
}

// A corpus file of which any part can be made wrong.
struct RawCorpus {
  std::string format = "draftsmith corpus";
  int64_t version = 1, vocabulary = 10, examples = 2, tokens = 3;
  std::vector<int64_t> offsets = {0, 2, 3};
  std::vector<int32_t> ids = {1, 2, 3};
};

std::filesystem::path write_raw_corpus(const std::filesystem::path& file, const RawCorpus& raw) {
  Hdf5Writer writer(file);
  writer.set_attribute("/", "format", raw.format);
  writer.set_attribute("/", "format_version", raw.version);
  writer.set_attribute("/", "tokenizer_hash", std::string("abc"));
  writer.set_attribute("/", "vocabulary", raw.vocabulary);
  writer.set_attribute("/", "examples", raw.examples);
  writer.set_attribute("/", "source_tokens", raw.tokens);
  writer.set_attribute("/", "target_tokens", raw.tokens);
  for (const std::string side : {"/source", "/target"}) {
    writer.write_array(side + "/tokens", std::span(raw.ids));
    writer.write_array(side + "/offsets", std::span(raw.offsets));
  }
  writer.finish();
  return file;
}

std::string corpus_error(const RawCorpus& raw) {
  const TemporaryDirectory directory;
  const auto file = write_raw_corpus(directory / "raw.h5", raw);
  return error_of([&] { Corpus corpus(file); });
}

TEST(CorpusChecks, FormatAndVersion) {
  EXPECT_THAT(corpus_error({.format = "teacher cache"}),
              AllOf(HasSubstr("raw.h5"), HasSubstr("not a Draftsmith corpus")));
  EXPECT_THAT(corpus_error({.version = 2}), AllOf(HasSubstr("version"), HasSubstr("expected: 1"),
                                                  HasSubstr("found:    2"), HasSubstr("make it again")));
}

TEST(CorpusChecks, Offsets) {
  EXPECT_THAT(corpus_error({.offsets = {1, 2, 3}}), HasSubstr("/source/offsets[0]"));
  EXPECT_THAT(corpus_error({.offsets = {0, 4, 3}}), HasSubstr("/source/offsets[1]"));   // out of range
  EXPECT_THAT(corpus_error({.offsets = {0, -1, 3}}), HasSubstr("/source/offsets[1]"));  // negative, decreasing
  EXPECT_THAT(corpus_error({.offsets = {0, 2, 1}}), HasSubstr("/source/offsets[2]"));   // decreasing
  EXPECT_THAT(corpus_error({.offsets = {0, 1, 2}}), HasSubstr("/source/offsets[2]"));   // does not reach the end
  EXPECT_THAT(corpus_error({.offsets = {0, 3}}), HasSubstr("/source/offsets"));         // too few
}

TEST(CorpusChecks, CountsInAttributes) {
  EXPECT_THAT(corpus_error({.examples = 3}), HasSubstr("/source/offsets"));
  EXPECT_THAT(corpus_error({.examples = -1}), HasSubstr("attribute examples"));
  EXPECT_THAT(corpus_error({.examples = std::numeric_limits<int64_t>::max()}), HasSubstr("attribute examples"));
  EXPECT_THAT(corpus_error({.tokens = 4}), HasSubstr("/source/tokens"));
}

TEST(CorpusChecks, IdsMustLieInTheVocabulary) {
  EXPECT_THAT(corpus_error({.ids = {1, 10, 3}}), AllOf(HasSubstr("/source/tokens[1]"), HasSubstr("0 to 9")));
  EXPECT_THAT(corpus_error({.ids = {1, 2, -3}}), HasSubstr("/source/tokens[2]"));
}

TEST(CorpusChecks, FilesThatAreNoHdf5) {
  const TemporaryDirectory directory;
  const auto open = [&](std::string_view content) {
    const auto file = write_text(directory / "bad.h5", content);
    return error_of([&] { Corpus corpus(file); });
  };
  EXPECT_THAT(open(""), AllOf(HasSubstr("bad.h5"), HasSubstr("HDF5")));
  EXPECT_THAT(open("plain text, and enough of it to be longer than a signature"), HasSubstr("not an HDF5 file"));
  EXPECT_THAT(error_of([&] { Corpus corpus(directory / "absent.h5"); }), HasSubstr("no such file"));
  EXPECT_THAT(error_of([&] { Corpus corpus(directory.path()); }), HasSubstr("no such file"));
}

class DamagedCorpora : public testing::Test {
 protected:
  const TemporaryDirectory directory;
  const std::string whole = read_file(write_raw_corpus(directory / "whole.h5", {}));
};

TEST_F(DamagedCorpora, NeverGiveIdsOutsideTheVocabulary) {
  int64_t refused = 0;
  for (size_t at = 0; at < whole.size(); at += 61) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x5A);
    const auto file = write_text(directory / "damaged.h5", damaged);
    try {
      const Corpus corpus(file);
      for (int64_t i = 0; i < corpus.size(); ++i) {
        for (const int32_t id : corpus.source(i)) ASSERT_TRUE(id >= 0 && id < corpus.info().vocabulary);
      }
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(Show, PrintsInfoLengthsAndExamples) {
  const TemporaryDirectory directory;
  const auto tokenizer = small_tokenizer(directory / "spiece.model");
  CorpusWriter writer(directory / "c.h5", {.tokenizer_hash = tokenizer->hash(), .vocabulary = tokenizer->vocabulary()});
  writer.add(tokenizer->encode("the cat"), tokenizer->encode("a dog"));
  writer.finish();
  const Corpus corpus(directory / "c.h5");
  const std::string text = describe_corpus(corpus, tokenizer.get());
  EXPECT_THAT(text, AllOf(HasSubstr("examples       1"), HasSubstr("source: the cat"), HasSubstr("target: a dog"),
                          HasSubstr("source lengths")));
  const auto other = write_corpus(directory / "other.h5", {});
  const Corpus foreign(other);
  EXPECT_THAT(error_of([&] { describe_corpus(foreign, tokenizer.get()); }), HasSubstr("another tokenizer"));
}

}  // namespace
}  // namespace draftsmith::data
