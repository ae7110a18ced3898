#include "data/tokenizers/tokenizer.h"

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/signals.h"
#include "tests/data/small_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::data {
namespace {

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
  lines.front() = "þ";
  lines.push_back("");
  lines.push_back(" \xC2\xA0 ");
  lines.push_back("a \xE2\x96\x85 reserved character");
  const TokenizerOptions options{.vocabulary = 100, .character_coverage = 1, .max_lines = 300};
  const auto report = train_tokenizer(lines, options, directory / "a.model");
  const auto trained = load_tokenizer(directory / "a.model");
  EXPECT_THAT(trained->encode("þ"), testing::Not(testing::Contains(trained->unk()))) << "the first line counts";
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
  // A map of characters: its size, 256 units, and a text; libsentencepiece would follow the first unit anywhere.
  for (const uint32_t unit : {0U, 0xFFFFFFFFU, 0x100U, 256U << 10}) {
    std::string map(4 + 1024 + 2, '\0');
    map[1] = 4;
    std::memcpy(map.data() + 4, &unit, sizeof(unit));
    const std::string normalizer = std::string("\x89\x08\x12\x86\x08", 5) + map;  // with their sizes, and a tag
    for (const std::string tag : {"\x1a", "\x9a\x80\x80\x80\x10"}) {              // protobuf reads 32 bits of it
      const std::string found = load(model + tag + normalizer);
      EXPECT_THAT(found, HasSubstr(unit == 0 ? "no error" : "map of characters")) << unit;
    }
  }
  EXPECT_THAT(error_of([&] { load_tokenizer(directory / "absent.model"); }), HasSubstr("absent.model"));
}

TEST(Tokenizer, TokensAddedToAT5AreFoundByItsTokenizerJson) {
  const TemporaryDirectory directory;
  small_tokenizer(directory / "spiece.model");
  write_text(directory / "tokenizer.json", R"({"model": {"type": "Unigram"}})");
  write_text(directory / "tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer"})");
  for (const auto& [added, file] : {std::pair("<extra_id_0>", "spiece.model"), std::pair("<hl>", "tokenizer.json")}) {
    write_text(directory / "added_tokens.json", fmt::format("{{\"{}\": 32100}}", added));
    EXPECT_EQ(tokenizer_file(directory.path()).filename(), file);
  }
}

// Directories of translation models around one small SentencePiece model, whose pieces 0 to 2 are <pad>, </s>, <unk>.
class TranslationTokenizer : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> load(const std::string& name, const std::string& config, const Languages& languages = {}) {
    plain_ = small_tokenizer(directory_ / name);
    write_text(directory_ / "tokenizer_config.json", config);
    return load_tokenizer(directory_.path(), languages);
  }

  // Returns the plain model's ids of the text, each later by `offset`.
  std::vector<int32_t> shifted(const std::string& text, int32_t offset) const {
    std::vector<int32_t> ids = plain_->encode(text);
    for (int32_t& id : ids) id += offset;
    return ids;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Tokenizer> plain_;
  const std::string text_ = "the cat sees a dog";
};

TEST_F(TranslationTokenizer, PegasusPutsItsMasksBeforeThePieces) {
  const auto tokenizer = load("spiece.model", R"({"tokenizer_class": "PegasusTokenizer"})");
  EXPECT_EQ(tokenizer->encode(text_), shifted(text_, 103));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text_)), text_);
  EXPECT_EQ(tokenizer->piece(2), "<mask_1>");
  EXPECT_EQ(tokenizer->piece(104), "<unk_102>");
  EXPECT_EQ(tokenizer->unk(), 105);
  EXPECT_EQ(tokenizer->vocabulary(), plain_->vocabulary() + 103);
  EXPECT_THAT(tokenizer->encode("Ω"), testing::Contains(105));
  EXPECT_THAT(tokenizer->frames().target.after, testing::ElementsAre(1));
  EXPECT_NE(tokenizer->hash(), plain_->hash());
}

TEST_F(TranslationTokenizer, WithoutAClassTheKindOfModelDecidesAsInTransformers) {
  const auto named = load("spiece.model", R"({"tokenizer_class": "PegasusTokenizer"})");
  write_text(directory_ / "config.json", R"({"model_type": "pegasus"})");
  EXPECT_EQ(load("spiece.model", "{}")->encode(text_), named->encode(text_));
  std::filesystem::remove(directory_ / "spiece.model");
  write_text(directory_ / "config.json", R"({"model_type": "mbart"})");
  EXPECT_THAT(error_of([&] { load("sentencepiece.bpe.model", "{}"); }), HasSubstr("MBartTokenizer"));
}

TEST_F(TranslationTokenizer, LanguagesFollowThePiecesAndStandBeforeTexts) {
  const std::string config = R"({"additional_special_tokens": ["de_DE", "en_XX", "fr_XX"], "mask_token": "<mask>"})";
  const auto tokenizer = load("sentencepiece.bpe.model", config);
  const auto count = static_cast<int32_t>(tokenizer->vocabulary()) - 4;
  EXPECT_EQ(tokenizer->piece(count), "de_DE");
  EXPECT_EQ(tokenizer->piece(count + 3), "<mask>");
  EXPECT_THAT(tokenizer->frames().source.before, testing::ElementsAre(count + 1)) << "English if nothing else is said";
  EXPECT_FALSE(tokenizer->frames().forced_bos.has_value());
  const auto chosen = load_tokenizer(directory_.path(), {.source_language = "de_DE", .target_language = "fr_XX"});
  EXPECT_THAT(chosen->frames().source.before, testing::ElementsAre(count));
  EXPECT_THAT(chosen->frames().target.before, testing::ElementsAre(count + 2));
  EXPECT_EQ(chosen->frames().forced_bos, count + 2);
  EXPECT_EQ(chosen->decode(std::vector<int32_t>{count + 2, 2}), "");
  const auto error = [&](const Languages& languages) {
    return error_of([&] { load_tokenizer(directory_.path(), languages); });
  };
  EXPECT_THAT(error({.source_language = "", .target_language = "fr_XY"}),
              testing::AllOf(HasSubstr("target language"), HasSubstr("did you mean fr_XX"), HasSubstr("de_DE")));
  EXPECT_THAT(error({.source_language = "german", .target_language = ""}), HasSubstr("source language"));
  write_text(directory_ / "tokenizer_config.json", R"({"added_tokens_decoder": {"9": {"content": "de_DE"}}})");
  EXPECT_THAT(error({}), HasSubstr("given twice"));
  write_text(directory_ / "tokenizer_config.json", R"({"tokenizer_class": "MBartTokenizer"})");
  EXPECT_THAT(error({}), HasSubstr("MBartTokenizer"));
  write_text(directory_ / "tokenizer_config.json", R"({"tokenizer_class": "NllbTokenizer", "legacy_behaviour": true})");
  EXPECT_THAT(error({}), HasSubstr("legacy_behaviour"));
}

TEST_F(TranslationTokenizer, MarianNumbersThePiecesOfTwoModels) {
  const std::vector<std::string> other = {"ein Hund sieht die Katze", "die Katze singt", "ein Mann geht"};
  train_tokenizer(other, {.vocabulary = 40, .exact_size = false}, directory_ / "target.spm");
  nlohmann::json numbers = {{"</s>", 0}, {"<unk>", 1}, {">>fra<<", 2}};
  small_tokenizer(directory_ / "source.model");
  for (const char* name : {"source.model", "target.spm"}) {
    const auto pieces = load_tokenizer(directory_ / name);
    for (int32_t id = 3; id < pieces->vocabulary(); ++id) numbers.emplace(pieces->piece(id), numbers.size());
  }
  numbers["<pad>"] = numbers.size();
  write_text(directory_ / "vocab.json", numbers.dump());
  const auto tokenizer = load("source.spm", "{}", {.source_language = "", .target_language = "fra"});
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text_)), text_);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode_target("ein Mann singt")), "ein Mann singt");
  EXPECT_EQ(tokenizer->encode(">>fra<< the cat").front(), 2);
  EXPECT_EQ(tokenizer->encode(">>deu<< the cat").front(), 1);
  EXPECT_THAT(tokenizer->frames().source.before, testing::ElementsAre(2));
  EXPECT_TRUE(tokenizer->frames().target.before.empty());
  EXPECT_EQ(tokenizer->pad(), tokenizer->vocabulary() - 1);
  const auto error = [&](const nlohmann::json& damaged) {
    write_text(directory_ / "vocab.json", damaged.dump());
    return error_of([&] { load_tokenizer(directory_.path()); });
  };
  EXPECT_THAT(error({{"a", 0}, {"<unk>", 1}}), HasSubstr("no </s>"));
  EXPECT_THAT(error({{"a", 1}, {"<unk>", 1}, {"</s>", 0}}), HasSubstr("given twice"));
  EXPECT_THAT(error({{"a", -1}}), HasSubstr("vocab.json"));
  std::filesystem::remove(directory_ / "vocab.json");
  EXPECT_THAT(error_of([&] { load_tokenizer(directory_.path()); }), HasSubstr("vocab.json"));
}

// The ids of Transformers 5.23: <2fr> is a user-defined piece, here of a model whose bytes it follows.
TEST_F(TranslationTokenizer, MadladsLanguagesStandBetweenTexts) {
  const auto plain = small_tokenizer(directory_ / "plain.model");
  write_text(directory_ / "spiece.model",
             read_file(directory_ / "plain.model") + std::string("\x0a\x0e\x0a\x05<2fr>\x15\0\0\0\0\x18\x04", 16));
  const auto tokenizer = load_tokenizer(directory_.path(), {.source_language = "", .target_language = "fr"});
  const auto french = static_cast<int32_t>(plain->vocabulary());
  EXPECT_THAT(tokenizer->frames().source.before, testing::ElementsAre(french));
  const std::vector<std::pair<std::string, std::string>> texts = {{"", " the cat"}, {"a cat", "the dog"}, {"<2", ""}};
  for (const auto& [before, after] : texts) {
    std::vector<int32_t> wanted = plain->encode(before);
    wanted.push_back(french);
    for (const int32_t id : plain->encode(after)) wanted.push_back(id);
    EXPECT_EQ(tokenizer->encode(before + "<2fr>" + after), wanted);
  }
  EXPECT_EQ(tokenizer->encode("<2de> a <2"), plain->encode("<2de> a <2"));
}

TEST_F(TranslationTokenizer, ByT5HasBytesAndNoFile) {
  EXPECT_THAT(error_of([&] { load_tokenizer(directory_.path()); }), HasSubstr("ByT5Tokenizer"));
  write_text(directory_ / "config.json", R"({"tokenizer_class": "ByT5Tokenizer"})");
  EXPECT_TRUE(has_tokenizer(directory_.path()));
  write_text(directory_ / "tokenizer_config.json", R"({"tokenizer_class": "ByT5Tokenizer", "extra_ids": 0})");
  const auto tokenizer = load_tokenizer(directory_.path());
  EXPECT_EQ(tokenizer->vocabulary(), 384);
  EXPECT_THAT(tokenizer->encode("a</s> ü<extra_id_0>"), testing::ElementsAre(100, 1, 198, 191, 259));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{3 + 0xC3, 3 + 0x28, 100, 259, 1, 383}), "(a");
  EXPECT_THAT(tokenizer->frame().after, testing::ElementsAre(1));
  EXPECT_EQ(load_tokenizer(tokenizer->file())->hash(), tokenizer->hash());
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
