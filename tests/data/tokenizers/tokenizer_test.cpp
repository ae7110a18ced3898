#include "data/tokenizers/tokenizer.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/signals.h"
#include "tests/data/small_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::data {
namespace {

using testing::HasSubstr;

std::vector<std::string> caption_lines() {
  std::vector<std::string> lines;
  for (int i = 0; i < 200; ++i) {
    lines.push_back("der Hund Nummer " + std::to_string(i) + " sieht die schöne Katze im Garten");
    lines.push_back("eine Frau liest " + std::to_string(i * 7) + " große Bücher am Fluß");
  }
  return lines;
}

TEST(Tokenizer, DecodesWhatItEncodedForUnigramAndBpe) {
  const TemporaryDirectory directory;
  for (const std::string type : {"unigram", "bpe"}) {
    const auto file = directory / (type + ".model");
    const auto report = train_tokenizer(caption_lines(), {.type = type, .vocabulary = 120}, file);
    const auto tokenizer = load_tokenizer(file);
    EXPECT_EQ(report.vocabulary, 120);
    EXPECT_EQ(tokenizer->vocabulary(), 120);
    const std::string text = "die Frau sieht 42 schöne Bücher";
    const std::vector<int32_t> ids = tokenizer->encode(text);
    EXPECT_EQ(tokenizer->decode(ids), text) << type;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer->unk()), 0);
  }
}

TEST(Tokenizer, TrainingIsDeterministicAndIndependentOfTheFilesName) {
  const TemporaryDirectory directory;
  for (const std::string type : {"unigram", "bpe"}) {
    const auto a = train_tokenizer(caption_lines(), {.type = type, .vocabulary = 150}, directory / "a.model");
    const auto b = train_tokenizer(caption_lines(), {.type = type, .vocabulary = 150}, directory / "other.model");
    EXPECT_EQ(a.hash, b.hash) << type;
  }
}

TEST(Tokenizer, TrainingEndsWhenAStopIsRequested) {
  const TemporaryDirectory directory;
  const SignalWatch watch;
  const LongWork work("nothing");
  request_stop(SIGTERM);
  EXPECT_THROW(train_tokenizer(caption_lines(), {.vocabulary = 120}, directory / "a.model"), Interrupted);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Tokenizer, TrainingCountsLinesItDoesNotUse) {
  const TemporaryDirectory directory;
  std::vector<std::string> lines = caption_lines();
  lines.push_back("");
  lines.push_back(" \xC2\xA0 ");
  lines.push_back("a \xE2\x96\x85 reserved character");
  const auto report = train_tokenizer(lines, {.vocabulary = 100, .max_lines = 300}, directory / "a.model");
  EXPECT_EQ(report.lines, 403);
  EXPECT_EQ(
      report.unused,
      (TextCounts{{"empty lines", 2}, {"lines sampled out", 100}, {"lines with the reserved character U+2585", 1}}));
}

TEST(Tokenizer, VocabularyThatDoesNotFitTheTextIsAnErrorWithAHint) {
  const TemporaryDirectory directory;
  const auto train = [&](int64_t vocabulary) {
    return error_of([&] { train_tokenizer(caption_lines(), {.vocabulary = vocabulary}, directory / "a.model"); });
  };
  EXPECT_THAT(train(100000), HasSubstr("exact_size"));
  EXPECT_THAT(train(10), HasSubstr("cannot be trained"));
  EXPECT_FALSE(std::filesystem::exists(directory / "a.model"));
}

TEST(Tokenizer, FilesThatAreNoModelsAreErrors) {
  const TemporaryDirectory directory;
  const auto load = [&](std::string_view content) {
    const auto file = write_text(directory / "bad.model", content);
    return error_of([&] { load_tokenizer(file); });
  };
  EXPECT_THAT(load(""), HasSubstr("not a SentencePiece model"));
  EXPECT_THAT(load("this is plain text, not a model"), HasSubstr("not a SentencePiece model"));
  EXPECT_THAT(load(std::string(1000, '\0')), HasSubstr("not a SentencePiece model"));
  small_tokenizer(directory / "spiece.model");
  const std::string model = read_file(directory / "spiece.model");
  EXPECT_THAT(load(model.substr(0, model.size() / 2)), HasSubstr("not a SentencePiece model"));
  EXPECT_THAT(error_of([&] { load_tokenizer(directory / "absent.model"); }), HasSubstr("absent.model"));
}

TEST(TokenIds, AreSeparatedByBlanks) {
  EXPECT_THAT(parse_token_ids("  3 0\t9 ", 10, "ids.txt:1", ""), testing::ElementsAre(3, 0, 9));
  EXPECT_THAT(parse_token_ids("", 10, "ids.txt:2", ""), testing::IsEmpty());
}

TEST(TokenIds, OthersAreErrorsThatNameThePlace) {
  for (const char* word : {"10", "-1", "x", "1x", "99999999999999999999", "1.5", "+1"}) {
    EXPECT_THAT(error_of([&] { parse_token_ids(std::string("1 ") + word, 10, "ids.txt:7", "give ids"); }),
                testing::AllOf(HasSubstr("ids.txt:7"), HasSubstr("0..9"), HasSubstr(word)));
  }
}

}  // namespace
}  // namespace draftsmith::data
