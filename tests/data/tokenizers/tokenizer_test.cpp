#include "data/tokenizers/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/sha256.h"
#include "data/text/readers.h"
#include "tests/data/small_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/paths.h"

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

TEST(Tokenizer, FollowsT5ConventionsForSpecialIds) {
  const TemporaryDirectory directory;
  const auto tokenizer = small_tokenizer(directory / "spiece.model");
  EXPECT_EQ(tokenizer->pad(), 0);
  EXPECT_EQ(tokenizer->eos(), 1);
  EXPECT_EQ(tokenizer->unk(), 2);
  EXPECT_EQ(tokenizer->piece(0), "<pad>");
  EXPECT_EQ(tokenizer->piece(1), "</s>");
  EXPECT_EQ(tokenizer->hash(), sha256_file(directory / "spiece.model"));
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

TEST(Tokenizer, TrainingOnFilesEqualsTrainingOnTheirLines) {
  const TemporaryDirectory directory;
  std::string text;
  for (const std::string& line : caption_lines()) text += line + "\r\n";
  const std::vector<std::filesystem::path> files = {write_text(directory / "a.txt", text)};
  const auto from_files = train_tokenizer(files, {.vocabulary = 100}, directory / "a.model");
  const auto from_memory = train_tokenizer(caption_lines(), {.vocabulary = 100}, directory / "b.model");
  EXPECT_EQ(from_files.hash, from_memory.hash);
}

TEST(Tokenizer, TrainingCountsLinesItDoesNotUse) {
  const TemporaryDirectory directory;
  std::vector<std::string> lines = caption_lines();
  lines.push_back("");
  lines.push_back(" \xC2\xA0 ");
  lines.push_back("a \xE2\x96\x85 reserved character");
  const auto report = train_tokenizer(lines, {.vocabulary = 100, .max_lines = 300}, directory / "a.model");
  EXPECT_EQ(report.lines, 403);
  EXPECT_EQ(report.empty, 2);
  EXPECT_EQ(report.reserved, 1);
  EXPECT_EQ(report.sampled_out, 100);
  EXPECT_EQ(report.nonzero().size(), 3U);
}

TEST(Tokenizer, TrainingTakesLinesOfAnyLength) {
  const TemporaryDirectory directory;
  std::string line;
  for (int i = 0; i < 2000; ++i) line += "abc def ghij ";
  const std::vector<std::string> lines = {line};  // SentencePiece's own limit is 4,192 bytes
  train_tokenizer(lines, {.vocabulary = 20, .exact_size = false}, directory / "a.model");
  const auto tokenizer = load_tokenizer(directory / "a.model");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("abc ghij")), "abc ghij");
}

TEST(Tokenizer, KeepsSymbolsWhole) {
  const TemporaryDirectory directory;
  train_tokenizer(caption_lines(), {.vocabulary = 120, .symbols = {"#Person1#", "a,b\"c"}}, directory / "a.model");
  const auto tokenizer = load_tokenizer(directory / "a.model");
  EXPECT_EQ(tokenizer->piece(3), "#Person1#");
  EXPECT_EQ(tokenizer->piece(4), "a,b\"c");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("die #Person1# liest")), "die #Person1# liest");
}

TEST(Tokenizer, ByteFallbackEncodesCharactersWithoutPiece) {
  const TemporaryDirectory directory;
  train_tokenizer(caption_lines(), {.vocabulary = 400, .exact_size = false, .byte_fallback = true},
                  directory / "a.model");
  const auto tokenizer = load_tokenizer(directory / "a.model");
  const std::string text = "der Hund 日";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
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

TEST(Tokenizer, TextWithoutWordsIsAnError) {
  const TemporaryDirectory directory;
  const std::vector<std::string> lines = {"", " "};
  EXPECT_THAT(error_of([&] { train_tokenizer(lines, {}, directory / "a.model"); }), HasSubstr("no text"));
}

TEST(Tokenizer, IsFoundInAModelDirectory) {
  const TemporaryDirectory directory;
  EXPECT_THAT(error_of([&] { load_tokenizer(directory.path()); }), HasSubstr("spiece.model"));
  small_tokenizer(directory / "tokenizer.model");
  EXPECT_EQ(load_tokenizer(directory.path())->file().filename(), "tokenizer.model");
  small_tokenizer(directory / "spiece.model");
  EXPECT_EQ(load_tokenizer(directory.path())->file().filename(), "spiece.model");
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

TEST(Tokenizer, IdsOutsideTheVocabularyAreErrors) {
  const TemporaryDirectory directory;
  const auto tokenizer = small_tokenizer(directory / "spiece.model");
  const auto size = static_cast<int32_t>(tokenizer->vocabulary());
  EXPECT_THROW(tokenizer->decode(std::vector<int32_t>{size}), UserError);
  EXPECT_THROW(tokenizer->decode(std::vector<int32_t>{-1}), UserError);
  EXPECT_THROW(tokenizer->piece(size), UserError);
}

TEST(Tokenizer, ReadsLlamasModelWithItsOwnSpecialIds) {
  const auto file = draftsmith::test::data_dir() / "models" / "llama32k_tokenizer" / "tokenizer.model";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
  const auto tokenizer = load_tokenizer(file);
  EXPECT_EQ(tokenizer->vocabulary(), 32000);
  EXPECT_EQ(tokenizer->pad(), -1);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_EQ(tokenizer->unk(), 0);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("Zwei Männer – 日本")), "Zwei Männer – 日本");
}

}  // namespace
}  // namespace draftsmith::data
