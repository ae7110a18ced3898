// Small tokenizer.json files for tests: byte-level with given merges, and Llama's kind with bytes as fallback.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "data/tokenizers/bpe.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/support/files.h"

namespace draftsmith::data {

// The expression of Llama 3 (Grattafiori et al. 2024) in tokenizer.json.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// GPT-2's components; ids 0 to 255 are the bytes, then the merges' pieces in order. A merge is "a b" in byte-level
// characters.
inline nlohmann::json byte_level_json(const std::vector<std::string>& merges) {
  using nlohmann::json;
  json vocabulary = json::object();
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocabulary[piece_of_bytes({&c, 1})] = byte;
  }
  for (std::string merge : merges) {
    merge.erase(merge.find(' '), 1);
    vocabulary[merge] = vocabulary.size();
  }
  return {{"version", "1.0"},
          {"added_tokens", json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

// Llama's components: <unk>, <s>, </s>, 256 bytes, then characters and merges.
inline nlohmann::json byte_fallback_json(const std::vector<std::string>& characters,
                                         const std::vector<std::string>& merges) {
  using nlohmann::json;
  json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  const std::string digits = "0123456789ABCDEF";
  for (size_t byte = 0; byte < 256; ++byte) {
    vocabulary[std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">"] = 3 + byte;
  }
  for (const std::string& character : characters) vocabulary[character] = vocabulary.size();
  for (std::string merge : merges) {
    merge.erase(merge.find(' '), 1);
    vocabulary[merge] = vocabulary.size();
  }
  json added = json::array();
  for (const auto& [content, id] : std::vector<std::pair<std::string, int>>{{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}}) {
    added.push_back({{"id", id}, {"content", content}, {"normalized", false}, {"special", true}});
  }
  return {
      {"added_tokens", added},
      {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", vocabulary},
        {"merges", merges},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true}}}};
}

inline nlohmann::json added_token(const std::string& content, int64_t id, const nlohmann::json& options = {}) {
  nlohmann::json token = {{"content", content}, {"id", id}, {"normalized", false}, {"special", false}};
  if (options.is_object()) token.update(options);
  return token;
}

inline std::unique_ptr<Tokenizer> load_json_tokenizer(const nlohmann::json& root) {
  const TemporaryDirectory directory;
  write_text(directory / "tokenizer.json", root.dump());
  return load_tokenizer(directory / "tokenizer.json");
}

using Ids = std::vector<int32_t>;

}  // namespace draftsmith::data
