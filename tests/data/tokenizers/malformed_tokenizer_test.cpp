// Malformed and unsupported tokenizer files: each is refused with a message that names the file, the component and what
// was found; damage at random never does worse.
#include <functional>
#include <random>

#include <gmock/gmock.h>

#include "base/files.h"
#include "data/tokenizers/bpe.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/tokenizers/tokenizer_files.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::data {
namespace {

using nlohmann::json;

struct TokenizerDamage {
  std::string name;
  std::function<void(json&)> apply;
  std::vector<std::string> message;
};

// Merges "a b" 256, "ab c" 257.
json sound_json() {
  json file = byte_level_json({"a b", "ab c"});
  file["added_tokens"] = {added_token("<end>", 258, {{"special", true}})};
  return file;
}

TokenizerDamage set(const std::string& name, const std::string& pointer, const json& value,
                    std::vector<std::string> message) {
  return {name, [=](json& file) { file[json::json_pointer(pointer)] = value; }, std::move(message)};
}

json split_of(const json& pattern, const std::string& behavior = "Isolated") {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", false}};
}

std::vector<TokenizerDamage> component_damages() {
  const json scored = std::vector<std::pair<std::string, double>>{{"a", -1}};
  return {
      set("ModelWordPiece", "/model/type", "WordPiece", {"model", "BPE or Unigram", "WordPiece"}),
      set("UnigramOfAnObject", "/model/type", "Unigram", {"model", "'vocab'", "a list"}),
      set("UnigramWithoutUnknown", "/model", {{"type", "Unigram"}, {"vocab", scored}}, {"unk_id"}),
      set("UnigramUnknownOutside", "/model", {{"type", "Unigram"}, {"unk_id", 1}, {"vocab", scored}},
          {"unk_id", "less than 1", "1"}),
      set("UnigramScoreAbsent", "/model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", json::array({"a"})}},
          {"vocab", "[\"piece\", score]"}),
      set("CharactersNoBase64", "/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "?"}}, {"base64"}),
      set("CharactersOfFilling", "/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "===="}},
          {"base64"}),
      set("RobertaOfAnAbsentId", "/post_processor",
          {{"type", "RobertaProcessing"}, {"cls", {"<s>", 5000}}, {"sep", {"</s>", 2}}}, {"no token of", "5000"}),
      set("CharactersCut", "/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "//8AAAAA"}},
          {"precompiled_charsmap", "damaged", "65535"}),
      set("RobertaWithoutId", "/post_processor",
          {{"type", "RobertaProcessing"}, {"cls", {"<s>"}}, {"sep", {"</s>", 2}}}, {"'cls'", "<s>"}),
      set("ModelAList", "/model", json::array(), {"model"}),
      set("NormalizerUnknown", "/normalizer", {{"type", "Lowercase"}}, {"normalizer", "NFC", "Lowercase"}),
      set("NormalizerOfABadRegex", "/normalizer",
          {{"type", "Replace"}, {"pattern", {{"Regex", "a("}}}, {"content", ""}}, {"normalizer", "regular expression"}),
      set("NormalizerText", "/normalizer", "NFC", {"normalizer", "object"}),
      set("PreTokenizerUnknown", "/pre_tokenizer", {{"type", "Whitespace"}},
          {"pre_tokenizer", "ByteLevel", "Whitespace"}),
      set("PreTokenizerAfterByteLevel", "/pre_tokenizer",
          {{"type", "Sequence"},
           {"pretokenizers",
            {{{"type", "ByteLevel"}, {"add_prefix_space", false}}, {{"type", "Digits"}, {"individual_digits", true}}}}},
          {"pre_tokenizer", "ByteLevel", "Digits"}),
      set("PreTokenizerFlagText", "/pre_tokenizer/add_prefix_space", "no", {"add_prefix_space", "true or false", "no"}),
      set("RegexOfAnUnknownClass", "/pre_tokenizer", split_of({{"Regex", "\\p{Hann}+"}}), {"pre_tokenizer", "Hann"}),
      set("PatternEmpty", "/pre_tokenizer", split_of({{"String", ""}}), {"'pattern' is empty"}),
      set("BehaviorUnknown", "/pre_tokenizer", split_of({{"String", "a"}}, "Thrown"), {"'behavior'", "Thrown"}),
      set("MetaspaceOfTwo", "/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "__"}}, {"'replacement'", "__"}),
      set("TemplateOfAbsentToken", "/post_processor",
          {{"type", "TemplateProcessing"},
           {"single", {{{"SpecialToken", {{"id", "<x>"}, {"type_id", 0}}}}}},
           {"special_tokens", json::object()}},
          {"post_processor", "<x>"}),
      set("DecoderNone", "/decoder", nullptr, {"decoder"}),
      set("DecoderOrder", "/decoder",
          {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, {{"type", "ByteFallback"}}}}},
          {"decoder", "order", "ByteFallback"}),
      set("DecoderStripsTheEnd", "/decoder",
          {{"type", "Sequence"},
           {"decoders", {{{"type", "Fuse"}}, {{"type", "Strip"}, {"content", " "}, {"start", 0}, {"stop", 1}}}}},
          {"decoder", "Strip", "stop 0"})};
}

std::vector<TokenizerDamage> model_damages() {
  return {
      set("SubwordPrefix", "/model/continuing_subword_prefix", "##", {"continuing_subword_prefix", "##"}),
      set("Dropout", "/model/dropout", 0.1, {"dropout", "0.1"}),
      set("VocabularyAList", "/model/vocab", json::array({"a"}), {"vocab", "object"}),
      {"VocabularyAbsent", [](json& file) { file["model"].erase("vocab"); }, {"model", "'vocab' is missing"}},
      {"MergesAbsent", [](json& file) { file["model"].erase("merges"); }, {"model", "'merges' is missing"}},
      set("IdNegative", "/model/vocab/a", -1, {"vocab", "'a': -1"}),
      set("IdBeyondTheLimit", "/model/vocab/a", kMaxTokenId + 1, {"vocab", "2097152"}),
      set("IdTwice", "/model/vocab/a", 98, {"given twice"}),
      set("MergeOfUnknownLeft", "/model/merges/0", "日 b", {"merge 1", "日"}),
      set("MergeOfUnknownUnion", "/model/merges/1", "a c", {"merge 2", "'ac'"}),
      set("MergeOfOne", "/model/merges/0", "ab", {"merges", "one blank", "ab"}),
      set("MergeAListOfThree", "/model/merges/0", json::array({"a", "b", "c"}), {"merges", "[\"a\", \"b\"]"}),
      set("UnknownTokenAbsent", "/model/unk_token", "<unk>", {"unknown token", "<unk>"}),
      set("FlagANumber", "/model/fuse_unk", 1, {"fuse_unk", "true or false"}),
      set("AddedTokensAnObject", "/added_tokens", json::object(), {"added_tokens", "list"}),
      set("AddedIdNegative", "/added_tokens/0/id", -5, {"added_tokens", "'id'", "-5"}),
      set("AddedIdNotItsOwn", "/added_tokens/0/id", 7, {"<end>", "258", "7"}),
      set("AddedTokenAText", "/added_tokens/0", "<end>", {"added_tokens", "object"}),
  };
}

class MalformedTokenizer : public testing::TestWithParam<TokenizerDamage> {};

TEST_P(MalformedTokenizer, IsRefusedByName) {
  json file = sound_json();
  ASSERT_EQ(error_of([&] { load_json_tokenizer(file); }), "no error");
  GetParam().apply(file);
  const std::string message = error_of([&] { load_json_tokenizer(file); });
  EXPECT_THAT(message, HasSubstr("tokenizer.json"));
  for (const std::string& part : GetParam().message) EXPECT_THAT(message, HasSubstr(part));
}

std::string case_name(const testing::TestParamInfo<TokenizerDamage>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Component, MalformedTokenizer, testing::ValuesIn(component_damages()), case_name);
INSTANTIATE_TEST_SUITE_P(Model, MalformedTokenizer, testing::ValuesIn(model_damages()), case_name);

std::string text_error(const std::string& text) {
  const TemporaryDirectory directory;
  const auto file = write_text(directory / "tokenizer.json", text);
  return error_of([&] { load_tokenizer(file); });
}

TEST(MalformedTokenizerFile, TextThatIsNoJson) {
  EXPECT_THAT(text_error(""), HasSubstr("JSON"));
  EXPECT_THAT(text_error("[]"), HasSubstr("model"));
  EXPECT_THAT(text_error("{\"model\": {\"type\": \"BPE\", "), HasSubstr("tokenizer.json:1"));
  EXPECT_THAT(text_error("{\"model\": \"\xC3\x28\"}"), HasSubstr("JSON"));
  EXPECT_THAT(text_error("{\"model\": \"\\ud800\"}"), HasSubstr("JSON"));
  EXPECT_THAT(text_error("{\"a\":" + std::string(100'000, '[')), HasSubstr("nested too deeply"));
  EXPECT_THAT(text_error("{\"model\": {\"vocab\": {\"a\": 0, \"a\": 1}}}"), HasSubstr("given twice"));
}

TEST(MalformedTokenizerFile, Gpt2Files) {
  const TemporaryDirectory directory;
  const auto load = [&](const std::string& vocabulary, const std::string& merges) {
    write_text(directory / "vocab.json", vocabulary);
    write_text(directory / "merges.txt", merges);
    return error_of([&] { load_tokenizer(directory.path()); });
  };
  const std::string vocabulary = R"({"a": 0, "b": 1, "ab": 2})";
  EXPECT_EQ(load(vocabulary, "#version: 0.2\na b\n"), "no error");
  EXPECT_THAT(load(vocabulary, "a b\n\n"), HasSubstr("merges.txt:2"));
  EXPECT_THAT(load(vocabulary, "a  b"), HasSubstr("merges.txt:1"));
  EXPECT_THAT(load(vocabulary, "a \xFF"), HasSubstr("UTF-8"));
  EXPECT_THAT(load(vocabulary, "b a"), HasSubstr("'ba'"));
  EXPECT_THAT(load("[1]", "a b"), HasSubstr("vocab.json"));
  EXPECT_THAT(load(R"({"a": 0, "b": 0})", ""), HasSubstr("given twice"));
  EXPECT_THAT(load(R"({"a": 99999999999999999999})", ""), HasSubstr("vocab.json"));
  write_text(directory / "added_tokens.json", R"({"<x>": -2})");
  EXPECT_THAT(load(vocabulary, ""), HasSubstr("added_tokens.json"));
  write_text(directory / "added_tokens.json", "[]");
  EXPECT_THAT(load(vocabulary, ""), HasSubstr("added_tokens.json"));
  write_text(directory / "added_tokens.json", R"({"<x>": 900})");
  EXPECT_THAT(load(vocabulary, ""), HasSubstr("'<x>'"));
  std::filesystem::remove(directory / "added_tokens.json");
  write_text(directory / "tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})");
  EXPECT_THAT(load(vocabulary, ""), HasSubstr("tokenizer_config.json"));
  std::filesystem::remove(directory / "tokenizer_config.json");
  std::filesystem::remove(directory / "merges.txt");
  EXPECT_FALSE(has_tokenizer(directory.path()));
  EXPECT_THAT(error_of([&] { load_tokenizer(directory / "vocab.json"); }), HasSubstr("merges.txt"));
}

TEST(MalformedTokenizerFile, RandomDamageNeverCrashes) {
  const TemporaryDirectory directory;
  json file = sound_json();
  file["normalizer"] = {{"type", "NFC"}};
  file["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {split_of({{"Regex", "(?i:'s)|[^\\s\\p{L}]+|\\p{N}{1,3}| ?\\p{L}+"}}),
                             {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}}}}};
  // Without the 256 bytes, so that most damage hits what matters.
  file["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"abc", 4}, {"Ġ", 5}};
  file["added_tokens"] = {added_token("<end>", 6, {{"special", true}})};
  const std::string whole = file.dump(1);
  std::mt19937_64 random(19);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = whole;
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % damaged.size();
      if (random() % 3 == 0) {
        damaged.erase(at, 1 + random() % 8);
      } else {
        damaged[at] = static_cast<char>(random() % 128);
      }
    }
    write_text(directory / "tokenizer.json", damaged);
    const std::string message = error_of([&] {
      const auto tokenizer = load_tokenizer(directory / "tokenizer.json");
      tokenizer->decode(tokenizer->encode("abc's ab<end> 123 c\u0301"));
    });
    refused += message == "no error" ? 0 : 1;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 2000);
}

}  // namespace
}  // namespace draftsmith::data
