// Byte pair encoding from tokenizer.json and from GPT-2's files, on small hand-made vocabularies. Large ones are
// compared with `tokenizers` in tests/parity.
#include <gmock/gmock.h>

#include "base/files.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/small_tokenizer.h"
#include "tests/data/tokenizers/tokenizer_files.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::data {
namespace {

using nlohmann::json;

// Merges of "h e" 256, "l l" 257, "he ll" 258, "hell o" 259, "Ġ w" 260.
json hello_json() {
  return byte_level_json({"h e", "l l", "he ll", "hell o", "Ġ w"});
}

TEST(BpeTokenizer, MergesTheBestPairFirstAndTheLeftmostOfEquals) {
  const auto tokenizer = load_json_tokenizer(byte_level_json({"a b", "b c", "a a"}));
  EXPECT_THAT(tokenizer->encode("abc"), ElementsAre(256, 'c'));
  EXPECT_THAT(tokenizer->encode("bbc"), ElementsAre('b', 257));
  EXPECT_THAT(tokenizer->encode("aaaaa"), ElementsAre(258, 258, 'a'));
  EXPECT_THAT(tokenizer->encode("aab"), ElementsAre('a', 256));
}

TEST(BpeTokenizer, IgnoringMergesTakesAWordThatIsAPiece) {
  json file = hello_json();
  file["model"]["vocab"]["hxx"] = 261;
  EXPECT_THAT(load_json_tokenizer(file)->encode("hxx"), ElementsAre('h', 'x', 'x'));
  file["model"]["ignore_merges"] = true;
  EXPECT_THAT(load_json_tokenizer(file)->encode("hxx"), ElementsAre(261));
}

TEST(BpeTokenizer, MergesMayBeStringsOrPairs) {
  json file = hello_json();
  file["model"]["merges"] = json::array({{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {"Ġ", "w"}});
  EXPECT_THAT(load_json_tokenizer(file)->encode("hello"), ElementsAre(259));
}

TEST(BpeTokenizer, AddedTokensAreFoundWhereverTheyStand) {
  json file = hello_json();
  file["added_tokens"] = {added_token("<end>", 261, {{"special", true}}), added_token("<end>>", 262),
                          added_token("<word>", 263, {{"single_word", true}}),
                          added_token("<wide>", 264, {{"lstrip", true}, {"rstrip", true}})};
  const auto tokenizer = load_json_tokenizer(file);
  EXPECT_THAT(tokenizer->encode("hello<end>hello"), ElementsAre(259, 261, 259));
  EXPECT_THAT(tokenizer->encode("<end>><end>"), ElementsAre(262, 261)) << "the longest counts";
  EXPECT_THAT(tokenizer->encode("<word> <word>"), ElementsAre(263, ' ', 263));
  EXPECT_EQ(tokenizer->encode("<word>s").size(), 7U) << "not beside a word character";
  EXPECT_THAT(tokenizer->encode("hello \u3000<wide>\t hello"), ElementsAre(259, 264, 259));
  EXPECT_EQ(tokenizer->decode(Ids{259, 261, 262}), "hello<end>>") << "special tokens print nothing";
  EXPECT_EQ(tokenizer->vocabulary(), 265);
}

TEST(BpeTokenizer, NormalizedAddedTokensAreFoundInNormalizedText) {
  json file = hello_json();
  file["normalizer"] = {{"type", "NFC"}};
  file["added_tokens"] = {added_token("e\u0301", 261, {{"normalized", true}}), added_token("o\u0301", 262)};
  const auto tokenizer = load_json_tokenizer(file);
  EXPECT_THAT(tokenizer->encode("e\u0301\u00E9"), ElementsAre(261, 261));
  EXPECT_THAT(tokenizer->encode("o\u0301"), ElementsAre(262));
  EXPECT_THAT(tokenizer->encode("\u00F3"), ElementsAre(0xC3, 0xB3)) << "compared before normalisation";
}

TEST(BpeTokenizer, PrefixSpaceIsPutBeforeEveryStretchOfText) {
  json file = hello_json();
  file["pre_tokenizer"]["add_prefix_space"] = true;
  file["added_tokens"] = {added_token("<x>", 261)};
  EXPECT_THAT(load_json_tokenizer(file)->encode("w<x>w w"), ElementsAre(260, 261, 260, 260));
}

TEST(BpeTokenizer, FrameAndSpecialIdsComeFromTheFiles) {
  const TemporaryDirectory directory;
  json file = hello_json();
  file["added_tokens"] = {added_token("<go>", 261, {{"special", true}}),
                          added_token("<stop>", 262, {{"special", true}})};
  file["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single", {{{"SpecialToken", {{"id", "<go>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}}}}}},
         {"special_tokens", {{"<go>", {{"id", "<go>"}, {"ids", {261}}, {"tokens", {"<go>"}}}}}}}}}};
  write_text(directory / "tokenizer.json", file.dump());
  write_text(directory / "tokenizer_config.json",
             R"({"bos_token": "<go>", "eos_token": {"content": "<stop>"}, "pad_token": null})");
  const auto tokenizer = load_tokenizer(directory.path());
  EXPECT_EQ(tokenizer->bos(), 261);
  EXPECT_EQ(tokenizer->eos(), 262);
  EXPECT_EQ(tokenizer->pad(), -1);
  EXPECT_THAT(tokenizer->frame().before, ElementsAre(261));
  EXPECT_TRUE(tokenizer->frame().after.empty());
  EXPECT_EQ(tokenizer->hash(), sha256_file(directory / "tokenizer.json"));
  file["post_processor"]["processors"].push_back(
      {{"type", "RobertaProcessing"}, {"cls", {"<stop>", 262}}, {"sep", {"<stop>", 262}}});  // around the others
  write_text(directory / "tokenizer.json", file.dump());
  EXPECT_THAT(load_tokenizer(directory.path())->frame().before, ElementsAre(262, 261));
}

TEST(BpeTokenizer, Gpt2FilesGiveTheSameIdsAsTokenizerJson) {
  const TemporaryDirectory directory;
  const json file = hello_json();
  write_text(directory / "vocab.json", file["model"]["vocab"].dump());
  write_text(directory / "merges.txt", "#version: 0.2\nh e\nl l\r\nhe ll\nhell o\nĠ w\n");
  write_text(directory / "added_tokens.json", R"({"<|endoftext|>": 261})");
  const auto tokenizer = load_tokenizer(directory.path());
  const auto same = load_json_tokenizer(file);
  EXPECT_EQ(tokenizer->encode("hello w hello"), same->encode("hello w hello"));
  EXPECT_THAT(tokenizer->encode("hello<|endoftext|>"), ElementsAre(259, 261));
  EXPECT_EQ(tokenizer->eos(), 261);
  EXPECT_EQ(tokenizer->decode(Ids{259, 261}), "hello");
  EXPECT_EQ(tokenizer->hash().size(), 64U);
  EXPECT_EQ(load_tokenizer(directory / "vocab.json")->hash(), tokenizer->hash());
  write_text(directory / "tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  EXPECT_THAT(error_of([&] { load_tokenizer(directory.path()); }), testing::HasSubstr("Qwen2Tokenizer"))
      << "its words end elsewhere";
}

TEST(BpeTokenizer, BytesStandInForCharactersWithoutAPiece) {
  const auto tokenizer = load_json_tokenizer(byte_fallback_json({"▁", "a", "b"}, {"▁ a"}));
  EXPECT_THAT(tokenizer->encode("ab ü"), ElementsAre(262, 261, 259, 3 + 0xC3, 3 + 0xBC));
  EXPECT_EQ(tokenizer->decode(Ids{262, 261, 259, 3 + 0xC3, 3 + 0xBC}), "ab ü");
  EXPECT_EQ(tokenizer->decode(Ids{261, 3 + 0xC3, 3 + 0xBC, 3 + 0xFF, 261}), "b\uFFFD\uFFFD\uFFFDb")
      << "a byte that is no UTF-8 spoils its run";
  EXPECT_THAT(tokenizer->encode("<s>a"), ElementsAre(1, 260)) << "only a text's own start gets a blank";
  EXPECT_EQ(tokenizer->unk(), 0);
}

TEST(BpeTokenizer, UnknownCharactersAreFusedOrNot) {
  json file = byte_fallback_json({"▁", "a"}, {});
  file["model"]["byte_fallback"] = false;
  EXPECT_THAT(load_json_tokenizer(file)->encode("xxa"), ElementsAre(259, 0, 260));
  file["model"]["fuse_unk"] = false;
  EXPECT_THAT(load_json_tokenizer(file)->encode("xxa"), ElementsAre(259, 0, 0, 260));
  file["model"].erase("unk_token");
  EXPECT_THAT(load_json_tokenizer(file)->encode("xxa"), ElementsAre(259, 260));
}

TEST(BpeTokenizer, IdsOutsideTheVocabularyAreErrorsAndGapsPrintNothing) {
  json file = hello_json();
  file["model"]["vocab"]["far"] = 300;
  const auto tokenizer = load_json_tokenizer(file);
  EXPECT_EQ(tokenizer->vocabulary(), 301);
  EXPECT_EQ(tokenizer->decode(Ids{280, 300}), "far");
  EXPECT_THAT(error_of([&] { tokenizer->decode(Ids{301}); }), HasSubstr("0 to 300"));
  EXPECT_THAT(error_of([&] { tokenizer->piece(-1); }), HasSubstr("-1"));
}

TEST(BpeTokenizer, BartsFilesHaveRobertasFrameAndTokens) {
  const TemporaryDirectory directory;
  json vocabulary = {{"<s>", 0}, {"<pad>", 1}, {"</s>", 2}, {"<unk>", 3}};
  const json hello = hello_json();
  for (const auto& [piece, id] : hello["model"]["vocab"].items()) vocabulary[piece] = id.get<int>() + 4;
  write_text(directory / "vocab.json", vocabulary.dump());
  write_text(directory / "merges.txt", "h e\nl l\nhe ll\nhell o\nĠ w\n");
  const auto tokenizer = load_tokenizer(directory.path());
  EXPECT_THAT(tokenizer->encode("hello"), ElementsAre(263));
  EXPECT_THAT(tokenizer->frame().before, ElementsAre(0));
  EXPECT_THAT(tokenizer->frame().after, ElementsAre(2));
  EXPECT_EQ(tokenizer->pad(), 1);
  EXPECT_EQ(tokenizer->decode(Ids{0, 263, 2}), "hello");
  write_text(directory / "tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer", "bos_token": "</s>"})");
  EXPECT_TRUE(load_tokenizer(directory.path())->frame().before.empty()) << "OPT has Bart's pieces";
}

TEST(BpeTokenizer, RobertaAndBertProcessingAreFrames) {
  json file = hello_json();
  for (const char* type : {"RobertaProcessing", "BertProcessing"}) {
    file["post_processor"] = {{"type", type}, {"sep", {"h", 104}}, {"cls", {"e", 101}}};
    EXPECT_THAT(load_json_tokenizer(file)->frame().before, ElementsAre(101));
    EXPECT_THAT(load_json_tokenizer(file)->frame().after, ElementsAre(104));
  }
}

TEST(UnigramTokenizer, TakesTheBestPiecesAndFusesUnknownCharacters) {
  const json metaspace = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}};
  const std::vector<std::pair<std::string, double>> pieces = {
      {"<unk>", 0}, {"▁", -2}, {"a", -3}, {"b", -3}, {"▁ab", -5}, {"ab", -5.5}, {"<0xC3>", -9}, {"<0xBC>", -9}};
  json file = {{"normalizer",
                {{"type", "Sequence"},
                 {"normalizers",
                  {{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}},
                   {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}}}}}},
               {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace}}}},
               {"decoder", metaspace},
               {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", pieces}}}};
  const auto tokenizer = load_json_tokenizer(file);
  EXPECT_THAT(tokenizer->encode("  ab  aab xyb "), ElementsAre(4, 1, 2, 5, 1, 0, 3));
  EXPECT_EQ(tokenizer->decode(Ids{4, 1, 2, 5}), "ab aab");
  EXPECT_EQ(tokenizer->decode(Ids{1, 4}), " ab") << "the first piece alone loses its blanks";
  EXPECT_EQ(tokenizer->unk(), 0);
  file["model"]["byte_fallback"] = true;
  EXPECT_THAT(load_json_tokenizer(file)->encode("ü"), ElementsAre(1, 6, 7));
}

TEST(TokenizerChoice, ByteLevelJsonComesBeforeOtherFilesAndUnigramJsonAfterSentencePiece) {
  const TemporaryDirectory directory;
  EXPECT_FALSE(has_tokenizer(directory.path()));
  write_text(directory / "tokenizer.json", R"({"model": {"type": "Unigram", "vocab": []}})");
  EXPECT_TRUE(has_tokenizer(directory.path()));
  EXPECT_THAT(error_of([&] { load_tokenizer(directory.path()); }), HasSubstr("'decoder' is missing"));
  small_tokenizer(directory / "spiece.model");
  EXPECT_EQ(load_tokenizer(directory.path())->file().filename(), "spiece.model");
  write_text(directory / "tokenizer.json", hello_json().dump());
  EXPECT_EQ(load_tokenizer(directory.path())->file().filename(), "tokenizer.json");
}

TEST(TokenizerChoice, TiktokensFileBesideTokenizerJsonIsLeftAlone) {
  const TemporaryDirectory directory;
  write_text(directory / "tokenizer.model", "IQ== 0\nIg== 1\n");
  EXPECT_THAT(error_of([&] { load_tokenizer(directory.path()); }), HasSubstr("not a SentencePiece model"));
  write_text(directory / "tokenizer.json", hello_json().dump());
  EXPECT_EQ(load_tokenizer(directory.path())->file().filename(), "tokenizer.json");
}

}  // namespace
}  // namespace draftsmith::data
