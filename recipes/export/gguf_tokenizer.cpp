#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "data/chat/chat_template.h"
#include "data/tokenizers/bpe.h"
#include "data/tokenizers/pre_tokenizer.h"
#include "data/tokenizers/sentencepiece.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/tokenizer_files.h"
#include "recipes/export/gguf.h"

namespace draftsmith::recipes {

namespace {

// Types of tokens.
constexpr int32_t kNormalToken = 1;
constexpr int32_t kControlToken = 3;
constexpr int32_t kUserToken = 4;
constexpr int32_t kUnusedToken = 5;

constexpr const char* kEachDigit = "each digit";  // a step that cuts words
// The expression of Mistral's tekken in tokenizer.json.
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?)"
    R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// Tokens by id.
struct GgufTokens {
  std::vector<std::string> texts{};
  std::vector<float> scores{};  // empty: none
  std::vector<int32_t> types{};

  void fill_up(size_t vocabulary) {
    for (size_t id = texts.size(); id < vocabulary; ++id) add(fmt::format("[UNUSED{}]", id), kUnusedToken, -10000);
  }
  void add(std::string text, int32_t type, float score = 0) {
    texts.push_back(std::move(text));
    types.push_back(type);
    scores.push_back(score);
  }
};

[[noreturn]] void refuse_tokenizer(const data::Tokenizer& tokenizer, const std::string& found) {
  throw UserError({.where = tokenizer.file().string(),
                   .what = "llama.cpp has no such tokenizer",
                   .expected =
                       "a SentencePiece model of kind unigram or bpe, or byte-level BPE that cuts words as GPT-2, "
                       "Llama 3, Qwen, SmolLM or Mistral's tekken does",
                   .found = found,
                   .hint = "--format hf exports the model for Transformers"});
}

void add_tokens(GgufTokens tokens, bool with_scores, GgufValues& values) {
  values.emplace_back("tokenizer.ggml.tokens", std::move(tokens.texts));
  if (with_scores) values.emplace_back("tokenizer.ggml.scores", std::move(tokens.scores));
  values.emplace_back("tokenizer.ggml.token_type", std::move(tokens.types));
}

void add_special_ids(const data::Tokenizer& tokenizer, GgufValues& values) {
  const std::pair<const char*, int32_t> ids[] = {
      {"bos", tokenizer.bos()}, {"eos", tokenizer.eos()}, {"unknown", tokenizer.unk()}, {"padding", tokenizer.pad()}};
  for (const auto& [name, id] : ids) {
    if (id >= 0) values.emplace_back(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<uint32_t>(id));
  }
  const data::TextFrame frame = tokenizer.frame();
  values.emplace_back("tokenizer.ggml.add_bos_token", !frame.before.empty());
  values.emplace_back("tokenizer.ggml.add_eos_token", !frame.after.empty());
}

// What a SentencePiece model file holds: SentencePiece's own interface gives neither the kind of model nor its
// normalisation.
struct SentencePieceContents {
  enum class Kind : int32_t { kUnigram = 1, kBpe = 2, kWord = 3, kCharacter = 4 };
  // 1 normal, 2 unknown, 3 control, 4 defined by the user, 5 unused, 6 byte.
  struct Piece {
    std::string text{};
    float score = 0;
    int32_t type = 1;
  };
  std::vector<Piece> pieces{};  // by id
  Kind kind = Kind::kUnigram;
  std::string character_map{};  // precompiled_charsmap; empty: texts stay as they are
  bool adds_space = true;       // a space in front of every text
  bool joins_spaces = true;     // runs of spaces become one
};

constexpr uint64_t kMaxPieceBytes = uint64_t{256} << 20;

// A field of a Protocol Buffers message: its number, and its content as bytes or as an integer.
struct MessageField {
  uint64_t number = 0;
  std::string_view bytes{};
  uint64_t integer = 0;
};

// Calls visit(field) for every field of a serialised message. Returns false if the bytes are no message.
template <class Visit>
bool read_message(std::string_view bytes, const Visit& visit) {
  size_t at = 0;
  bool sound = true;
  const auto variable_integer = [&]() -> uint64_t {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at < bytes.size(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes[at++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    sound = false;
    return 0;
  };
  const auto take = [&](uint64_t count) {
    sound = sound && count <= bytes.size() - at;
    const std::string_view taken = sound ? bytes.substr(at, count) : std::string_view();
    at += taken.size();
    return taken;
  };
  while (sound && at < bytes.size()) {
    const uint64_t tag = variable_integer();
    MessageField field{.number = tag >> 3};
    switch (tag & 7) {
      case 0:
        field.integer = variable_integer();
        break;
      case 1:
        field.bytes = take(8);
        break;
      case 2:
        field.bytes = take(variable_integer());
        break;
      case 5:
        field.bytes = take(4);
        break;
      default:
        sound = false;
    }
    if (sound) visit(field);
  }
  return sound;
}

// Reads a model file. Errors: UserError for a file that is no SentencePiece model.
SentencePieceContents read_sentencepiece(const std::filesystem::path& file) {
  const std::string model = read_file(file, kMaxPieceBytes);
  SentencePieceContents contents;
  bool read = true;
  const auto read_piece = [&](const MessageField& field) {
    SentencePieceContents::Piece& piece = contents.pieces.back();
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2 && field.bytes.size() == 4) std::memcpy(&piece.score, field.bytes.data(), 4);
    if (field.number == 3) piece.type = static_cast<int32_t>(field.integer);
  };
  const auto read_training = [&](const MessageField& field) {
    if (field.number == 3) contents.kind = static_cast<SentencePieceContents::Kind>(field.integer);
  };
  const auto read_normalizer = [&](const MessageField& field) {
    if (field.number == 2) contents.character_map = field.bytes;
    if (field.number == 3) contents.adds_space = field.integer != 0;
    if (field.number == 4) contents.joins_spaces = field.integer != 0;
  };
  read &= read_message(model, [&](const MessageField& field) {
    if (field.number == 1) contents.pieces.emplace_back();
    if (field.number == 1) read &= read_message(field.bytes, read_piece);
    if (field.number == 2) read &= read_message(field.bytes, read_training);
    if (field.number == 3) read &= read_message(field.bytes, read_normalizer);
  });
  if (read && !contents.pieces.empty()) return contents;
  throw UserError({.where = file.string(),
                   .what = "not a SentencePiece model",
                   .expected = "a file such as spiece.model or tokenizer.model",
                   .found = contents.pieces.empty() ? "no pieces" : "damaged bytes"});
}

// Returns the values of a SentencePiece model in `file`, to which the tokenizer may add tokens.
GgufValues sentencepiece_values(const data::Tokenizer& tokenizer, const std::filesystem::path& file,
                                int64_t vocabulary) {
  using Kind = SentencePieceContents::Kind;
  const SentencePieceContents contents = read_sentencepiece(file);
  if (contents.kind != Kind::kUnigram && contents.kind != Kind::kBpe) {
    refuse_tokenizer(tokenizer, fmt::format("a SentencePiece model of kind {}", static_cast<int32_t>(contents.kind)));
  }
  GgufTokens tokens;
  for (const auto& piece : contents.pieces) tokens.add(piece.text, piece.type, piece.score);
  for (auto id = static_cast<int32_t>(tokens.texts.size()); id < std::min(tokenizer.vocabulary(), vocabulary); ++id) {
    const bool control = tokenizer.text_piece(id).kind == data::TextPiece::Kind::kNothing;
    tokens.add(tokenizer.piece(id), control ? kControlToken : kUserToken, -1000);
  }
  tokens.fill_up(static_cast<size_t>(vocabulary));
  const bool unigram = contents.kind == Kind::kUnigram;
  GgufValues values = {{"tokenizer.ggml.model", std::string(unigram ? "t5" : "llama")},
                       {"tokenizer.ggml.pre", std::string("default")}};
  add_tokens(std::move(tokens), true, values);
  values.emplace_back("tokenizer.ggml.add_space_prefix", contents.adds_space);
  values.emplace_back("tokenizer.ggml.remove_extra_whitespaces", contents.joins_spaces);
  if (unigram && !contents.character_map.empty()) {
    values.emplace_back("tokenizer.ggml.precompiled_charsmap",
                        std::vector<uint8_t>(contents.character_map.begin(), contents.character_map.end()));
  }
  add_special_ids(tokenizer, values);
  return values;
}

// Appends the steps that cut a text into words, an expression each; an empty one for what llama.cpp has not.
void add_cuts(const nlohmann::json& cut, std::vector<std::string>& cuts) {
  const std::string type = cut.is_object() ? cut.value("type", "") : "";
  if (type == "Sequence") {
    for (const nlohmann::json& part : cut.at("pretokenizers")) add_cuts(part, cuts);
  } else if (type == "Split") {
    // Where an expression matches every text, both forms keep its matches and nothing else.
    const bool isolated = cut.at("behavior") == "Isolated" && !cut.value("invert", false);
    const bool kept = cut.at("behavior") == "Removed" && cut.value("invert", false);
    cuts.push_back(isolated || kept ? cut.at("pattern").value("Regex", "") : "");
  } else if (type == "ByteLevel" && !cut.value("add_prefix_space", true)) {
    if (cut.value("use_regex", true)) cuts.emplace_back(data::kGpt2Pattern);
  } else {
    cuts.emplace_back(type == "Digits" && cut.value("individual_digits", false) ? kEachDigit : "");
  }
}

// Returns llama.cpp's name of what cuts a text into words, and of whether words that are pieces are merged; empty: it
// has none.
std::string pre_tokenizer_name(const std::filesystem::path& file, bool ignore_merges) {
  if (file.filename() != "tokenizer.json") return "gpt-2";  // GPT-2's own files
  std::vector<std::string> cuts;
  add_cuts(load_json(file).value("pre_tokenizer", nlohmann::json()), cuts);
  const std::string llama3(data::kLlama3Pattern), gpt2(data::kGpt2Pattern);
  std::string qwen = llama3;
  qwen.erase(qwen.find("{1,3}"), 5);  // each digit is a word
  struct Name {
    std::vector<std::string> cuts;
    bool ignore_merges;
    const char* name;
  };
  for (const Name& known : {Name{{llama3}, true, "llama-bpe"}, Name{{llama3}, false, "dbrx"},
                            Name{{std::string(kTekkenPattern)}, true, "tekken"}, Name{{qwen}, false, "qwen2"},
                            Name{{kEachDigit, gpt2}, false, "smollm"}, Name{{gpt2}, false, "gpt-2"}}) {
    if (known.cuts == cuts && known.ignore_merges == ignore_merges) return known.name;
  }
  return "";
}

data::BpeParts bpe_parts(const std::filesystem::path& file) {
  if (file.filename() == "vocab.json") return data::read_gpt2_files(file, file.parent_path() / "merges.txt");
  return data::read_tokenizer_json(file);
}

GgufTokens bpe_tokens(const data::BpeParts& parts) {
  std::map<int32_t, std::pair<std::string, int32_t>> by_id;
  std::map<std::string, int32_t> ids;
  for (const auto& [piece, id] : parts.model.pieces) {
    by_id[id] = {piece, kNormalToken};
    ids[piece] = id;
  }
  for (const data::AddedToken& token : parts.added) {
    const auto known = ids.find(token.content);
    const int32_t id = token.id >= 0 ? token.id : known != ids.end() ? known->second : by_id.rbegin()->first + 1;
    by_id[id] = {token.content, token.special ? kControlToken : kUserToken};
  }
  GgufTokens tokens;
  for (const auto& [id, token] : by_id) {
    tokens.fill_up(static_cast<size_t>(id));
    tokens.add(token.first, token.second);
  }
  return tokens;
}

GgufValues bpe_values(const data::Tokenizer& tokenizer, int64_t vocabulary) {
  const data::BpeParts parts = bpe_parts(tokenizer.file());
  // Beside the BPE with bytes of a Llama 2, Mistral or Phi-3 lies the SentencePiece model that it was made of.
  const std::filesystem::path beside = tokenizer.file().parent_path() / "tokenizer.model";
  const bool made = !parts.model.byte_level && std::filesystem::exists(beside) && data::is_sentencepiece(beside);
  if (made) return sentencepiece_values(tokenizer, beside, vocabulary);
  const std::string cut = pre_tokenizer_name(tokenizer.file(), parts.model.ignore_merges);
  if (cut.empty() || !parts.model.byte_level) refuse_tokenizer(tokenizer, "BPE of another kind");
  GgufTokens tokens = bpe_tokens(parts);
  tokens.fill_up(static_cast<size_t>(vocabulary));
  GgufValues values = {{"tokenizer.ggml.model", std::string("gpt2")}, {"tokenizer.ggml.pre", cut}};
  add_tokens(std::move(tokens), false, values);
  std::vector<std::string> merges;
  for (const auto& [left, right] : parts.model.merges) merges.push_back(left + " " + right);
  values.emplace_back("tokenizer.ggml.merges", std::move(merges));
  add_special_ids(tokenizer, values);
  return values;
}

}  // namespace

GgufValues gguf_tokenizer(const std::filesystem::path& directory, int64_t vocabulary) {
  if (!data::has_tokenizer(directory)) return {{"tokenizer.ggml.model", std::string("no_vocab")}};
  const auto tokenizer = data::load_tokenizer(directory);
  GgufValues values = data::is_sentencepiece(tokenizer->file())
                          ? sentencepiece_values(*tokenizer, tokenizer->file(), vocabulary)
                          : bpe_values(*tokenizer, vocabulary);
  if (const auto chat = data::find_chat_template(directory); chat && !chat->text.empty()) {
    values.emplace_back("tokenizer.chat_template", chat->text);
  }
  return values;
}

}  // namespace draftsmith::recipes
