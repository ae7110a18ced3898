#include "data/tokenizers/tokenizer_files.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/utf8.h"
#include "base/util.h"

namespace draftsmith::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kSpecialTokens = "special_tokens_map.json";
constexpr const char* kAddedTokens = "added_tokens.json";

json load_object(const fs::path& file) {
  if (!fs::exists(file)) return json::object();
  json value = load_json(file);
  if (!value.is_object()) {
    throw UserError({file.string(), "has an unusable value", "a JSON object", brief(value), ""});
  }
  return value;
}

// Returns the content of a special token, written as a string or as an object; empty if there is none.
std::string content_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return {};
}

std::string content_at(const json& object, const char* key) {
  return object.contains(key) ? content_of(object[key]) : "";
}

bool holds_token(const std::vector<AddedToken>& tokens, const std::string& content) {
  return std::ranges::find(tokens, content, &AddedToken::content) != tokens.end();
}

AddedToken token_of(const json& value, bool special) {
  AddedToken token{.content = content_of(value), .normalized = !special, .special = special};
  const auto flag = [&](const char* key, bool& member) {
    if (value.is_object() && value.contains(key) && value[key].is_boolean()) member = value[key].get<bool>();
  };
  flag("single_word", token.single_word);
  flag("lstrip", token.lstrip);
  flag("rstrip", token.rstrip);
  flag("normalized", token.normalized);
  flag("special", token.special);
  return token;
}

// Returns an id that a file writes as a number or as a key. Errors: UserError for an id out of range.
int32_t checked_id(const fs::path& file, std::string_view text) {
  const int64_t id = parse_whole<int64_t>(text).value_or(-1);
  if (id < 0 || id > kMaxTokenId) {
    throw UserError({file.string(), "an added token's id is unusable",
                     "an integer from 0 to " + std::to_string(kMaxTokenId), std::string(text.substr(0, 40)), ""});
  }
  return static_cast<int32_t>(id);
}

std::vector<AddedToken> from_decoder(const json& decoder, const fs::path& file) {
  std::vector<AddedToken> tokens;
  if (!decoder.is_object()) return tokens;
  for (const auto& [id, value] : decoder.items()) {
    tokens.push_back(token_of(value, false));
    tokens.back().id = checked_id(file, id);
  }
  return tokens;
}

std::vector<AddedToken> from_added_tokens(const fs::path& file, const std::vector<AddedToken>& special) {
  std::vector<AddedToken> tokens;
  const json added = load_object(file);
  for (const auto& entry : added.items()) {
    const bool is_special = holds_token(special, entry.key());
    tokens.push_back({.content = entry.key(),
                      .id = checked_id(file, entry.value().dump()),
                      .normalized = !is_special,
                      .special = is_special});
  }
  return tokens;
}

// Returns the values of a key: one special token or a list.
void add_special(const json& value, std::vector<AddedToken>& special) {
  if (value.is_array()) {
    for (const json& element : value) add_special(element, special);
    return;
  }
  AddedToken token = token_of(value, true);
  token.special = true;
  if (!token.content.empty() && !holds_token(special, token.content)) special.push_back(token);
}

void read_flags(const json& config, TokenizerConfig& result) {
  const auto flag = [&](const char* key, std::optional<bool>& member) {
    if (config.contains(key) && config[key].is_boolean()) member = config[key].get<bool>();
  };
  flag("add_prefix_space", result.add_prefix_space);
  flag("add_bos_token", result.add_bos_token);
  flag("add_eos_token", result.add_eos_token);
  flag("legacy_behaviour", result.legacy_behaviour);
  if (config.contains("extra_ids") && config["extra_ids"].is_number_unsigned()) {
    result.extra_ids = config["extra_ids"].get<int64_t>();
  }
  result.tokenizer_class = content_at(config, "tokenizer_class");
  result.languages = {.source_language = content_at(config, "src_lang"),
                      .target_language = content_at(config, "tgt_lang")};
  result.bos = content_at(config, "bos_token");
  result.eos = content_at(config, "eos_token");
  result.unk = content_at(config, "unk_token");
  result.pad = content_at(config, "pad_token");
}

// Returns tokenizer_config.json. Without the list of added tokens, which newer files have, the special tokens of
// special_tokens_map.json are put into it.
json config_with_special_tokens(const fs::path& directory) {
  json config = load_object(directory / kConfig);
  if (config.contains("added_tokens_decoder")) return config;
  const json special_tokens = load_object(directory / kSpecialTokens);
  for (const auto& [key, value] : special_tokens.items()) config[key] = value;
  return config;
}

}  // namespace

TokenizerConfig read_tokenizer_config(const fs::path& directory) {
  TokenizerConfig result;
  const json config = config_with_special_tokens(directory);
  read_flags(config, result);
  result.any_class = result.tokenizer_class;
  if (result.any_class.empty()) {
    const json model = load_object(directory / "config.json");
    result.any_class = content_at(model, "tokenizer_class");
    const std::string kind = result.any_class.empty() ? content_at(model, "model_type") : "";
    if (kind == "pegasus") result.any_class = "PegasusTokenizer";
    if (kind == "mbart" && fs::exists(directory / "sentencepiece.bpe.model")) result.any_class = "MBartTokenizer";
  }
  const bool has_decoder = config.contains("added_tokens_decoder");
  std::vector<AddedToken> special;
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
                          "additional_special_tokens", "extra_special_tokens"}) {
    if (config.contains(key)) add_special(config[key], special);
  }
  result.added = has_decoder ? from_decoder(config["added_tokens_decoder"], directory / kConfig)
                             : from_added_tokens(directory / kAddedTokens, special);
  std::sort(result.added.begin(), result.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (const AddedToken& token : special) {
    if (!holds_token(result.added, token.content)) result.added.push_back(token);
  }
  return result;
}

std::string_view language_of(std::string_view token) {
  constexpr std::pair<std::string_view, std::string_view> kFrames[] = {{"__", "__"}, {">>", "<<"}, {"<2", ">"}};
  for (const auto& [before, after] : kFrames) {
    if (token.size() <= before.size() + after.size() || !token.starts_with(before) || !token.ends_with(after)) continue;
    return token.substr(before.size(), token.size() - before.size() - after.size());
  }
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  const size_t bar = token.find('_');
  if (bar != 2 && bar != 3) return {};
  const std::string_view place = token.substr(bar + 1);
  const bool code = std::ranges::all_of(token.substr(0, bar), is_lower) && place.size() >= 2 && place.size() <= 4 &&
                    is_upper(place.front()) &&
                    std::ranges::all_of(place, [&](char c) { return is_lower(c) || is_upper(c); });
  return code ? token : std::string_view();
}

std::map<std::string, std::string> special_token_texts(const fs::path& directory) {
  std::map<std::string, std::string> texts;
  const json config = config_with_special_tokens(directory);
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token")) continue;
    if (const std::string text = content_of(value); !text.empty()) texts[key] = text;
  }
  return texts;
}

TextFrame sentencepiece_frame(const fs::path& directory, int32_t bos, int32_t eos) {
  const TokenizerConfig config = read_tokenizer_config(directory);
  const bool llama = config.any_class.find("Llama") != std::string::npos;
  const bool t5 = config.tokenizer_class.find("T5") != std::string::npos;
  TextFrame frame;
  if (bos >= 0 && config.add_bos_token.value_or(llama)) frame.before.push_back(bos);
  if (eos >= 0 && config.add_eos_token.value_or(t5)) frame.after.push_back(eos);
  return frame;
}

int64_t sentencepiece_writable_ids(const fs::path& directory, int64_t pieces) {
  constexpr int64_t kUsualSentinels = 100;  // of T5Tokenizer
  constexpr int64_t kMostSentinels = int64_t{1} << 20;
  const TokenizerConfig config = read_tokenizer_config(directory);
  int64_t ids = pieces;
  for (const AddedToken& token : config.added) ids = std::max<int64_t>(ids, token.id + 1);
  bool t5 = config.tokenizer_class.find("T5") != std::string::npos;
  if (config.tokenizer_class.empty()) {
    const std::string family = content_at(load_object(directory / "config.json"), "model_type");
    t5 = family == "t5" || family == "mt5" || family == "umt5";
  }
  if (t5) ids = std::max(ids, pieces + std::min(config.extra_ids.value_or(kUsualSentinels), kMostSentinels));
  return ids;
}

std::vector<std::pair<std::string, int32_t>> parse_vocabulary(const json& vocabulary, const std::string& where) {
  std::vector<std::pair<std::string, int32_t>> pieces;
  const auto refuse = [&](const std::string& what, const std::string& expected, const std::string& found) {
    throw UserError({where, what, expected, found, ""});
  };
  if (!vocabulary.is_object() || vocabulary.empty()) {
    refuse("has an unusable value", "an object of pieces and their ids", brief(vocabulary));
  }
  pieces.reserve(vocabulary.size());
  for (const auto& [piece, id] : vocabulary.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(kMaxTokenId)) {
      refuse("a token id is unusable", fmt::format("an integer from 0 to {}", kMaxTokenId),
             fmt::format("'{}': {}", piece.substr(0, 60), brief(id)));
    }
    pieces.emplace_back(piece, static_cast<int32_t>(id.get<uint64_t>()));
  }
  return pieces;
}

std::pair<std::string, std::string> parse_merge(std::string_view line, const std::string& where) {
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos) {
    throw UserError({where, "a merge has an unusable value", "two pieces with one blank between them",
                     "'" + std::string(line.substr(0, 80)) + "'", ""});
  }
  return {std::string(line.substr(0, blank)), std::string(line.substr(blank + 1))};
}

namespace {

constexpr uint64_t kMaxGpt2Bytes = 256'000'000;
const std::string kDefaultToken = "<|endoftext|>";  // GPT2Tokenizer's default for BOS, EOS and <unk>

std::vector<std::pair<std::string, std::string>> merges_on_lines(const std::string& text, const fs::path& file) {
  std::vector<std::pair<std::string, std::string>> merges;
  std::istringstream lines(text);
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    ++number;
    if (line.starts_with("#version")) continue;
    merges.push_back(parse_merge(line, fmt::format("{}:{}", file.string(), number)));
  }
  return merges;
}

// Refuses tokenizers that cut text by another expression than GPT-2's, as Qwen's do.
void require_gpt2_class(const TokenizerConfig& config, const fs::path& vocabulary) {
  constexpr const char* kGpt2Classes[] = {"GPT2",       "BartTokenizer",       "Roberta", "CodeGen", "LED", "Mvp",
                                          "Longformer", "BlenderbotTokenizer", "Whisper", "Deberta"};
  const std::string& name = config.any_class;
  if (name.empty() || std::ranges::any_of(kGpt2Classes, [&](const char* one) { return name.starts_with(one); })) return;
  throw UserError({vocabulary.string(), "text would be cut as GPT-2's is, and this tokenizer is of another class",
                   "a tokenizer.json, which says how text is cut", name,
                   "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) writes one"});
}

// Returns whether the files are BART's: Roberta's class, or none and Roberta's first pieces.
bool is_roberta(const TokenizerConfig& config, const std::vector<std::pair<std::string, int32_t>>& pieces) {
  const std::string& name = config.any_class;
  if (!name.empty()) return name.starts_with("Bart") || name.starts_with("Roberta");
  const auto has = [&](const char* piece, int32_t id) {
    return std::find(pieces.begin(), pieces.end(), std::pair<std::string, int32_t>(piece, id)) != pieces.end();
  };
  return !config.add_bos_token && has("<s>", 0) && has("<pad>", 1) && has("</s>", 2);
}

// Marks tokens with a role as special, also those from added_tokens.json, which has no such flag.
void mark_special(BpeParts& parts, const std::string& content) {
  for (AddedToken& token : parts.added) {
    if (token.content != content) continue;
    token.special = true;
    return;
  }
  parts.added.push_back({.content = content, .special = true});
}

}  // namespace

BpeParts read_gpt2_files(const fs::path& vocabulary, const fs::path& merges) {
  const std::string vocabulary_text = read_file(vocabulary, kMaxGpt2Bytes);
  const std::string merges_text = read_file(merges, kMaxGpt2Bytes);
  if (const auto bad = invalid_utf8_offset(merges_text)) {
    throw UserError({merges.string(), fmt::format("not valid UTF-8 at byte {}", *bad), "", "", ""});
  }
  BpeParts parts;
  parts.file = vocabulary;
  Sha256 hash;
  for (const std::string& text : {vocabulary_text, merges_text}) {
    hash.update(fmt::format("{}\n", text.size()));
    hash.update(text);
  }
  parts.hash = hash.hex_digest();
  parts.model.pieces = parse_vocabulary(parse_json(vocabulary_text, vocabulary.string()), vocabulary.string());
  parts.model.merges = merges_on_lines(merges_text, merges);

  TokenizerConfig config = read_tokenizer_config(vocabulary.parent_path());
  require_gpt2_class(config, vocabulary);
  parts.added = std::move(config.added);
  const bool roberta = is_roberta(config, parts.model.pieces);
  const auto or_default = [&](const std::string& content, const std::string& usual) {
    return content.empty() ? (roberta ? usual : kDefaultToken) : content;
  };
  parts.bos = or_default(config.bos, "<s>");
  parts.eos = or_default(config.eos, "</s>");
  parts.unk = or_default(config.unk, "<unk>");
  parts.pad = roberta ? or_default(config.pad, "<pad>") : config.pad;
  for (const std::string& content : {parts.bos, parts.eos, parts.unk, parts.pad}) {
    if (!content.empty()) mark_special(parts, content);
  }
  if (config.add_prefix_space.value_or(false)) parts.pre_tokenizer.push_back(add_prefix_space);
  parts.pre_tokenizer.push_back(
      make_split(regex_pattern(kGpt2Pattern, vocabulary.string()), SplitBehavior::kIsolated, false));
  parts.decoder.byte_level = true;
  parts.add_bos = config.add_bos_token.value_or(roberta);
  parts.add_eos = roberta;
  return parts;
}

BpeParts read_byt5(const fs::path& file) {
  constexpr int64_t kUsualSentinels = 125;
  constexpr int32_t kBytes = 256;
  const TokenizerConfig config = read_tokenizer_config(file.parent_path());
  int64_t sentinels = config.extra_ids.value_or(0) > 0 ? *config.extra_ids : kUsualSentinels;
  sentinels = std::min(sentinels, kMaxTokenId / 2);
  BpeParts parts;
  parts.file = file;
  parts.hash = sha256(fmt::format("ByT5: bytes and {} sentinels", sentinels));
  const auto add = [&](const std::string& token, bool strips) {
    const auto id = static_cast<int32_t>(parts.model.pieces.size());
    parts.model.pieces.emplace_back(token, id);
    parts.added.push_back({.content = token, .id = id, .lstrip = strips, .rstrip = strips, .special = true});
  };
  for (const char* token : {"<pad>", "</s>", "<unk>"}) add(token, true);
  for (int32_t byte = 0; byte < kBytes; ++byte) {
    const char c = static_cast<char>(byte);
    parts.model.pieces.emplace_back(piece_of_bytes({&c, 1}), static_cast<int32_t>(parts.model.pieces.size()));
  }
  for (int64_t i = 0; i < sentinels; ++i) add(fmt::format("<extra_id_{}>", i), false);
  parts.decoder.byte_level = true;
  parts.decoder.invalid = InvalidBytes::kDrop;
  parts.pad = "<pad>";
  parts.eos = "</s>";
  parts.unk = "<unk>";
  parts.add_eos = true;
  return parts;
}

}  // namespace draftsmith::data
