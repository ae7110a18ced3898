// Texts of streams: their pieces put together are the text decoded at once, and each is whole characters.
#include <random>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/utf8.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/small_tokenizer.h"
#include "tests/data/tokenizers/tokenizer_files.h"
#include "tests/support/errors.h"

namespace draftsmith::data {
namespace {

std::vector<std::string> stream(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDecoder decoder(tokenizer);
  std::vector<std::string> parts;
  for (const int32_t id : ids) parts.push_back(decoder.push(id));
  parts.push_back(decoder.flush());
  return parts;
}

// Streams of random ids, among them many of `often` (bytes, blanks), whose parts must be valid and add up.
void expect_streams_add_up(const Tokenizer& tokenizer, const Ids& often, int rounds) {
  std::mt19937 random(23);
  StreamDecoder decoder(tokenizer);  // one for all: flush begins a new text
  for (int round = 0; round < rounds; ++round) {
    Ids ids;
    for (size_t length = random() % 30; length > 0; --length) {
      const bool from_often = !often.empty() && random() % 2 == 0;
      ids.push_back(from_often ? often[random() % often.size()]
                               : static_cast<int32_t>(random() % static_cast<uint64_t>(tokenizer.vocabulary())));
    }
    std::string text;
    const auto add = [&](const std::string& part) {
      ASSERT_FALSE(invalid_utf8_offset(part)) << "round " << round;
      text += part;
    };
    for (const int32_t id : ids) add(decoder.push(id));
    add(decoder.flush());
    ASSERT_EQ(text, tokenizer.decode(ids)) << "round " << round << ": " << testing::PrintToString(ids);
  }
}

TEST(StreamDecoder, HoldsBytesBackUntilTheCharacterIsWhole) {
  const auto tokenizer = load_json_tokenizer(byte_level_json({}));
  EXPECT_THAT(stream(*tokenizer, {'a', 0xF0, 0x9F, 0x98, 0x80, 'b', 0xC3}),
              ElementsAre("a", "", "", "", "😀", "b", "", "\uFFFD"));
  EXPECT_THAT(stream(*tokenizer, {0xE6, 0x97, 'a'}), ElementsAre("", "", "\uFFFDa", ""));
}

TEST(StreamDecoder, ByteLevelStreamsAddUp) {
  nlohmann::json file = byte_level_json({"h e", "l l", "Ã ©", "æ Ĺ", "ð Ł"});
  file["added_tokens"] = {added_token("<end>", 261, {{"special", true}}), added_token("日本", 262),
                          added_token("é", 0xE9)};
  const auto tokenizer = load_json_tokenizer(file);
  expect_streams_add_up(*tokenizer, {0xE6, 0x97, 0xA5, 0xF0, 0x9F, 0x98, 0x80, 0xED, 0xA0, 0xFF, 259, 260, 261}, 20000);
}

TEST(StreamDecoder, ByteFallbackStreamsAddUp) {
  const auto tokenizer = load_json_tokenizer(byte_fallback_json({"▁", "a", "ü"}, {"▁ a", "▁ ▁"}));
  EXPECT_THAT(stream(*tokenizer, {262, 259, 260}), ElementsAre("a", " ", "a", ""));
  expect_streams_add_up(*tokenizer, {1, 259, 262, 263, 3 + 0xE6, 3 + 0x97, 3 + 0xA5, 3 + 0xFF, 3 + 0x20}, 20000);
}

TEST(StreamDecoder, SentencePieceStreamsAddUp) {
  const TemporaryDirectory directory;
  const auto plain = small_tokenizer(directory / "spiece.model");
  expect_streams_add_up(*plain, {0, 1, 2}, 3000);
  const std::vector<std::string> lines = {"the cat sees the dog", "the bird sings of a cat", "a dog sees a bird"};
  train_tokenizer(lines, {.vocabulary = 300, .exact_size = false, .byte_fallback = true}, directory / "bytes.model");
  const auto bytes = load_tokenizer(directory / "bytes.model");
  Ids often;
  for (int32_t id = 0; id < bytes->vocabulary(); ++id) {
    const std::string piece = bytes->piece(id);
    for (const char* wanted : {"<0xE6>", "<0x97>", "<0xA5>", "<0xF0>", "<0xFF>", "<pad>", "<unk>", "▁", "▁a"}) {
      if (piece == wanted) often.push_back(id);
    }
  }
  ASSERT_GT(often.size(), 7U);
  expect_streams_add_up(*bytes, often, 3000);
}

}  // namespace
}  // namespace draftsmith::data
