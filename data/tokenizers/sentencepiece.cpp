#include "data/tokenizers/sentencepiece.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <openssl/evp.h>
#include <sentencepiece_processor.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/utf8.h"
#include "data/tokenizers/bpe.h"
#include "data/tokenizers/pre_tokenizer.h"
#include "data/tokenizers/tokenizer_files.h"

namespace draftsmith::data {
namespace {

constexpr uint64_t kMaxModelBytes = uint64_t{256} << 20;
constexpr const char* kSpaceSymbol = "\xE2\x96\x81";  // U+2581

// Returns the bytes of the fields `number` of a protocol buffer's message, and nothing behind a damaged place.
std::vector<std::string_view> fields_of(std::string_view message, uint64_t number) {
  const auto next_number = [&message] {
    uint64_t value = 0, byte = 0x80;
    for (int shift = 0; byte >= 0x80 && shift < 64 && !message.empty(); shift += 7) {
      byte = static_cast<uint8_t>(message.front());
      message.remove_prefix(1);
      value |= (byte & 0x7F) << shift;
    }
    return value;
  };
  constexpr uint64_t kText = 2, kFixed[] = {0, 8, 0, 0, 0, 4, 0, 0};  // a type of fields, and the bytes of others
  std::vector<std::string_view> found;
  while (!message.empty()) {
    const uint64_t key = next_number() & 0xFFFFFFFF, type = key & 7;  // protobuf, too, reads 32 bits
    const std::string_view rest = message;
    if (type == 0) next_number();
    if (key >> 3 == number && type == 0) found.push_back(rest.substr(0, rest.size() - message.size()));
    uint64_t size = type == kText ? next_number() : kFixed[type];
    size = std::min<uint64_t>(size, message.size());  // of what is left behind the number
    if (key >> 3 == number && type != 0) found.push_back(message.substr(0, size));
    message.remove_prefix(size);
  }
  return found;
}

// Returns whether a map of characters leads out of its own bytes, which libsentencepiece would follow. The map is the
// size of a double array (of Darts), the array, and texts.
bool leads_out(std::string_view map) {
  uint32_t size = 0;
  if (map.size() < sizeof(size)) return false;  // libsentencepiece refuses it
  std::memcpy(&size, map.data(), sizeof(size));
  map.remove_prefix(sizeof(size));
  constexpr size_t kBlock = 256;  // units, among which a character chooses
  if (size == 0 || size >= map.size() || size % (kBlock * sizeof(uint32_t)) != 0 || map.back() != 0) return true;
  std::vector<uint32_t> units(size / sizeof(uint32_t));
  std::memcpy(units.data(), map.data(), size);
  for (size_t i = 0; i < units.size(); ++i) {
    const uint32_t unit = units[i];
    if (i > 0 && (unit >> 31) != 0) continue;  // a value, which matches no character
    const size_t next = i ^ double_array_offset(unit);
    if (next >= units.size()) return true;
    if ((unit & 0x100) != 0 && (units[next] & 0x7FFFFFFF) >= map.size() - size) return true;  // its value
  }
  return false;
}

// Loads a model file and returns its bytes. Errors: UserError for a file that is none.
std::string load_processor(const std::filesystem::path& file, sentencepiece::SentencePieceProcessor& processor) {
  std::string model = read_file(file, kMaxModelBytes);
  const auto refuse = [&](const std::string& found) {
    throw UserError(
        {file.string(), "not a SentencePiece model", "a file such as spiece.model or tokenizer.model", found, ""});
  };
  constexpr uint64_t kNormalizers[] = {3, 5}, kCharacterMap = 2;  // fields of sentencepiece_model.proto
  for (const uint64_t field : kNormalizers) {
    for (const std::string_view normalizer : fields_of(model, field)) {
      const bool damaged = std::ranges::any_of(fields_of(normalizer, kCharacterMap), leads_out);
      if (damaged) refuse("a damaged map of characters (precompiled_charsmap), or a file that is cut off");
    }
  }
  const sentencepiece::util::Status status = processor.LoadFromSerializedProto(model);  // follows the map
  if (model.empty()) refuse("an empty file");
  if (!status.ok() || processor.GetPieceSize() <= 0) refuse(status.ToString());
  return model;
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::filesystem::path& file) {
    file_ = file;
    hash_ = sha256(load_processor(file, processor_));
    special_ids_ = {processor_.pad_id(), processor_.eos_id(), processor_.unk_id(), processor_.bos_id()};
    frame_ = sentencepiece_frame(file.parent_path(), bos(), eos());
    writable_ids_ = sentencepiece_writable_ids(file.parent_path(), vocabulary());
  }

  // MADLAD's languages (<2fr>) stand between texts of their own, as in Transformers.
  std::vector<int32_t> encode(std::string_view text) const override {
    constexpr size_t kLongestLanguage = 40;
    std::vector<int32_t> ids;
    const auto append = [&](std::string_view part) {
      std::vector<int> own;
      const sentencepiece::util::Status status = processor_.Encode({part.data(), part.size()}, &own);
      if (!status.ok()) throw RunError({file_.string(), "encoding failed: " + status.ToString(), "", "", ""});
      ids.insert(ids.end(), own.begin(), own.end());
    };
    for (size_t begin = text.find("<2"); begin != std::string_view::npos; begin = text.find("<2", begin + 1)) {
      const size_t size = text.substr(begin, kLongestLanguage).find('>') + 1;  // 0: it does not end
      const int id = size == 0 ? processor_.unk_id() : processor_.PieceToId({text.data() + begin, size});
      if (id == processor_.unk_id()) continue;
      append(text.substr(0, begin));
      ids.push_back(id);
      text.remove_prefix(begin + size);
      begin = std::string_view::npos;  // so that the search goes on at the rest's beginning
    }
    append(text);
    return ids;
  }

  std::string decode(std::span<const int32_t> ids) const override {
    for (const int32_t id : ids) checked(id);
    std::string text;
    const sentencepiece::util::Status status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    if (!status.ok()) throw RunError({file_.string(), "decoding failed: " + status.ToString(), "", "", ""});
    return text;
  }

  int64_t vocabulary() const override { return processor_.GetPieceSize(); }
  int64_t writable_ids() const override { return writable_ids_; }
  std::string piece(int32_t id) const override {
    checked(id);
    return processor_.IdToPiece(id);
  }
  TextFrame frame() const override { return frame_; }

  TextPiece text_piece(int32_t id) const override {
    checked(id);
    if (processor_.IsControl(id)) return {TextPiece::Kind::kText, ""};
    if (processor_.IsUnknown(id)) return {TextPiece::Kind::kText, decode({&id, 1})};
    const std::string piece = processor_.IdToPiece(id);
    if (processor_.IsByte(id)) {
      return {TextPiece::Kind::kBytes, std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)))};
    }
    return {TextPiece::Kind::kText, replace_all(piece, kSpaceSymbol, " ")};
  }

  StreamRules stream_rules() const override {
    return {.invalid = InvalidBytes::kReplaceEach, .drops_leading_space = true};
  }

 protected:
  sentencepiece::SentencePieceProcessor processor_;
  TextFrame frame_;
  int64_t writable_ids_ = 0;
};

constexpr const char* kMarianSource = "source.spm";
constexpr const char* kMarianTarget = "target.spm";
constexpr const char* kNumbers = "vocab.json";

// Tokens of a family before the pieces of its model, by id: a model's first three pieces are control symbols and <unk>,
// which these replace.
std::vector<std::string> first_tokens(bool pegasus) {
  if (!pegasus) return {"<s>", "<pad>", "</s>", "<unk>"};
  std::vector<std::string> tokens = {"<pad>", "</s>", "<mask_1>", "<mask_2>"};
  for (int i = 2; i <= 102; ++i) tokens.push_back("<unk_" + std::to_string(i) + ">");
  tokens.push_back("<unk>");
  return tokens;
}

// A model whose pieces have other ids than their order gives: those of vocab.json (Marian, M2M-100), or behind the
// tokens that the family puts first (NLLB, mBART-50, Pegasus). Tokens of the configuration follow, languages first.
// Ids equal those of Transformers 5 without sacremoses, but texts lose the blanks at both ends; special tokens in a
// text are text.
class NumberedTokenizer : public SentencePieceTokenizer {
 public:
  NumberedTokenizer(const std::filesystem::path& file, const TokenizerConfig& config) : SentencePieceTokenizer(file) {
    const std::filesystem::path directory = file.parent_path();
    std::string defining = hash_;
    if (file.filename() == kMarianSource) {
      defining += sha256(load_processor(directory / kMarianTarget, target_.emplace()));
    }
    if (target_ || std::filesystem::exists(directory / kNumbers)) {
      number_by_file(directory / kNumbers);
    } else {
      number_in_order(config.any_class.starts_with("Pegasus"));
    }
    add_special(config);
    std::string all;
    for (const std::string& piece : pieces_) all.append(piece).push_back('\n');
    hash_ = sha256(defining + sha256(all));
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    // Marian: a language at the start, which need not be a piece.
    const size_t end = target_ && text.starts_with(">>") ? text.find("<<") : std::string_view::npos;
    if (end != std::string_view::npos) {
      ids.push_back(known(std::string(text.substr(0, end + 2))));
      text.remove_prefix(end + 2);
    }
    append(processor_, text, ids);
    return ids;
  }

  std::vector<int32_t> encode_target(std::string_view text) const override {
    if (!target_) return encode(text);
    std::vector<int32_t> ids;
    append(*target_, text, ids);
    return ids;
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::vector<std::string> pieces;
    for (const int32_t id : ids) {
      if (!special_[checked(id)]) pieces.push_back(pieces_[checked(id)]);
    }
    std::string text;
    const sentencepiece::util::Status status = processor_.Decode(pieces, &text);
    if (!status.ok()) throw RunError({file_.string(), "decoding failed: " + status.ToString(), "", "", ""});
    text = replace_all(text, kSpaceSymbol, " ");  // of pieces that only the target's model has
    return text.starts_with(' ') ? text.substr(1) : text;
  }

  int64_t vocabulary() const override { return std::ssize(pieces_); }
  int64_t writable_ids() const override { return vocabulary(); }
  std::string piece(int32_t id) const override { return pieces_[checked(id)]; }
  TextFrame frame() const override { return {.before = {}, .after = {eos()}}; }

  TextPiece text_piece(int32_t id) const override {
    if (special_[checked(id)]) return {TextPiece::Kind::kNothing, ""};
    return {TextPiece::Kind::kText, replace_all(pieces_[checked(id)], kSpaceSymbol, " ")};
  }

 private:
  [[noreturn]] static void refuse(const std::filesystem::path& where, const std::string& what,
                                  const std::string& expected, const std::string& found) {
    throw UserError({where.string(), what, expected, found, ""});
  }

  void number(const std::string& piece, int32_t id, const std::filesystem::path& where) {
    const auto index = static_cast<size_t>(id);
    if (index >= pieces_.size()) {
      pieces_.resize(index + 1);
      special_.resize(index + 1, true);  // gaps have no text
    }
    const bool taken = !pieces_[index].empty() && pieces_[index] != piece;
    const auto [place, fresh] = ids_.emplace(piece, id);
    if (taken || (!fresh && place->second != id)) {
      refuse(where, "an id or a piece is given twice", "each piece once, each id once",
             "'" + piece.substr(0, 60) + "' with id " + std::to_string(id));
    }
    pieces_[index] = piece;
    special_[index] = false;
  }

  void number_by_file(const std::filesystem::path& file) {
    for (const auto& [piece, id] : parse_vocabulary(load_json(file, kMaxModelBytes), file.string())) {
      number(piece, id, file);
    }
  }

  void number_in_order(bool pegasus) {
    constexpr int kReplaced = 3;
    const std::vector<std::string> first = first_tokens(pegasus);
    for (size_t id = 0; id < first.size(); ++id) number(first[id], static_cast<int32_t>(id), file_);
    for (size_t id = 0; id < first.size(); ++id) special_[id] = true;
    const int offset = static_cast<int>(first.size()) - kReplaced;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const bool normal = !processor_.IsControl(id) && !processor_.IsUnknown(id);
      if (normal != (id >= kReplaced)) {
        refuse(file_, "the model's first pieces are not its family's", "three control symbols or <unk>, then pieces",
               "piece " + std::to_string(id) + ": '" + processor_.IdToPiece(id).substr(0, 60) + "'");
      }
      if (normal) number(processor_.IdToPiece(id), id + offset, file_);
    }
  }

  // Adds the configuration's tokens and marks those that give no text.
  void add_special(const TokenizerConfig& config) {
    std::vector<AddedToken> added = config.added;
    std::ranges::stable_partition(
        added, [](const AddedToken& token) { return token.id >= 0 || !language_of(token.content).empty(); });
    for (const AddedToken& token : added) {
      if (token.content.empty()) continue;
      const bool known_piece = ids_.contains(token.content);
      const auto next = static_cast<int32_t>(std::min(vocabulary(), kMaxTokenId));
      if (token.id >= 0 || !known_piece) number(token.content, token.id >= 0 ? token.id : next, file_);
      if (token.special || language_of(token.content) == token.content) mark(token.content);
    }
    const auto role = [&](const std::string& named, const char* usual) {
      const std::string token = named.empty() ? usual : named;
      return ids_.contains(token) ? mark(token) : -1;
    };
    special_ids_ = {role(config.pad, "<pad>"), role(config.eos, "</s>"), role(config.unk, "<unk>"),
                    role(config.bos, "<s>")};
    if (eos() >= 0 && unk() >= 0) return;
    refuse(file_.parent_path() / kNumbers, "a special token has no id", "ids of </s> and <unk>",
           eos() < 0 ? "no </s>" : "no <unk>");
  }

  int32_t mark(const std::string& token) {
    const int32_t id = ids_.at(token);
    special_[static_cast<size_t>(id)] = true;
    return id;
  }

  int32_t known(const std::string& piece) const {
    const auto found = ids_.find(piece);
    return found == ids_.end() ? unk() : found->second;
  }

  void append(const sentencepiece::SentencePieceProcessor& model, std::string_view text,
              std::vector<int32_t>& ids) const {
    std::vector<std::string> pieces;
    const sentencepiece::util::Status status = model.Encode({text.data(), text.size()}, &pieces);
    if (!status.ok()) throw RunError({file_.string(), "encoding failed: " + status.ToString(), "", "", ""});
    for (const std::string& piece : pieces) ids.push_back(known(piece));
  }

  std::optional<sentencepiece::SentencePieceProcessor> target_;  // Marian's
  std::vector<std::string> pieces_;                              // by id
  std::vector<bool> special_;                                    // by id: gives no text
  std::unordered_map<std::string, int32_t> ids_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& file) {
  const TokenizerConfig config = read_tokenizer_config(file.parent_path());
  const std::string name = file.filename().string();
  const bool numbered =
      name == kMarianSource || name == "sentencepiece.bpe.model" || config.any_class.starts_with("Pegasus");
  if (numbered) return std::make_unique<NumberedTokenizer>(file, config);
  return std::make_unique<SentencePieceTokenizer>(file);
}

namespace {

using nlohmann::ordered_json;

// Returns the last field `number` of a message, as which protobuf reads a field that stands twice.
std::string last_field(std::string_view message, uint64_t number, std::string_view usual) {
  const auto found = fields_of(message, number);
  return std::string(found.empty() ? usual : found.back());
}

// Returns the steps of tokenizer.json that do to texts what a model's characters say and, if so, joins blanks.
ordered_json normalizer_steps(const std::string& characters, bool joins) {
  ordered_json steps = ordered_json::array();
  if (!characters.empty()) {
    std::string text((characters.size() + 2) / 3 * 4 + 1, '\0');
    EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                    reinterpret_cast<const unsigned char*>(characters.data()), static_cast<int>(characters.size()));
    text.pop_back();
    steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", text}});
  }
  if (!joins) return steps;
  steps.push_back({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
  steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}});
  return steps;
}

}  // namespace

ordered_json sentencepiece_json(const std::filesystem::path& file) {
  sentencepiece::SentencePieceProcessor processor;
  const std::string model = load_processor(file, processor), yes = "\1";
  constexpr uint64_t kTrainer = 2, kNormalizer = 3, kType = 3, kCharacters = 2, kBlankBefore = 3, kJoinsBlanks = 4;
  if (last_field(last_field(model, kTrainer, ""), kType, yes) != yes) return nullptr;  // 1: unigram
  ordered_json vocabulary = ordered_json::array(), added = vocabulary;
  bool bytes = false;
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    const std::string& piece = processor.IdToPiece(id);
    vocabulary.push_back({piece, processor.GetScore(id)});
    bytes = bytes || processor.IsByte(id);
    if (!processor.IsControl(id) && !processor.IsUnknown(id)) continue;
    added.push_back({{"id", id}, {"content", piece}, {"normalized", false}, {"special", true}});
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) added.back()[flag] = false;
  }
  const std::string normalizer = last_field(model, kNormalizer, "");
  const auto steps =
      normalizer_steps(last_field(normalizer, kCharacters, ""), last_field(normalizer, kJoinsBlanks, yes) == yes);
  const std::string before = last_field(normalizer, kBlankBefore, yes) == yes ? "always" : "never";
  const ordered_json blank = {{"type", "Replace"}, {"pattern", {{"String", kSpaceSymbol}}}, {"content", " "}},
                     first = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  return {
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", {{"type", "Sequence"}, {"normalizers", steps}}},
      {"pre_tokenizer",
       {{"type", "Metaspace"}, {"replacement", kSpaceSymbol}, {"prepend_scheme", before}, {"split", true}}},
      {"decoder", {{"type", "Sequence"}, {"decoders", {blank, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}, first}}}},
      {"model",
       {{"type", "Unigram"}, {"unk_id", processor.unk_id()}, {"vocab", vocabulary}, {"byte_fallback", bytes}}}};
}

bool is_sentencepiece(const std::filesystem::path& file) {
  try {
    SentencePieceTokenizer{file};
    return true;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace draftsmith::data
