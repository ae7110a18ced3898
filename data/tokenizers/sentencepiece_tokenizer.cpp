#include "data/tokenizers/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include "base/error.h"
#include "base/files.h"
#include "base/sha256.h"
#include "data/tokenizers/text_normalizer.h"
#include "data/tokenizers/tokenizer_config.h"

namespace draftsmith::data {

namespace {

constexpr uint64_t kMaxModelBytes = uint64_t{256} << 20;
constexpr const char* kSpaceSymbol = "\xE2\x96\x81";  // U+2581

class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::filesystem::path& file) : file_(file) {
    const std::string model = read_file(file, kMaxModelBytes);
    const sentencepiece::util::Status status = processor_.LoadFromSerializedProto(model);
    if (model.empty() || !status.ok() || processor_.GetPieceSize() == 0) {
      throw UserError({.where = file.string(),
                       .what = "not a SentencePiece model",
                       .expected = "a file such as spiece.model or tokenizer.model",
                       .found = model.empty() ? "an empty file" : status.ToString()});
    }
    hash_ = sha256(model);
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    const sentencepiece::util::Status status = processor_.Encode({text.data(), text.size()}, &ids);
    if (!status.ok()) throw RunError({.where = file_.string(), .what = "encoding failed: " + status.ToString()});
    return {ids.begin(), ids.end()};
  }

  std::string decode(std::span<const int32_t> ids) const override {
    for (const int32_t id : ids) check(id);
    std::string text;
    const sentencepiece::util::Status status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    if (!status.ok()) throw RunError({.where = file_.string(), .what = "decoding failed: " + status.ToString()});
    return text;
  }

  int64_t vocabulary() const override { return processor_.GetPieceSize(); }
  int64_t writable_ids() const override { return sentencepiece_writable_ids(file_.parent_path(), vocabulary()); }
  int32_t pad() const override { return processor_.pad_id(); }
  int32_t eos() const override { return processor_.eos_id(); }
  int32_t unk() const override { return processor_.unk_id(); }
  int32_t bos() const override { return processor_.bos_id(); }

  std::string piece(int32_t id) const override {
    check(id);
    return processor_.IdToPiece(id);
  }

  const std::string& hash() const override { return hash_; }
  const std::filesystem::path& file() const override { return file_; }
  std::vector<std::filesystem::path> files() const override { return with_configuration_files(file_); }

  TextFrame frame() const override {
    return sentencepiece_frame(file_.parent_path(), processor_.bos_id(), processor_.eos_id());
  }

  TextPiece text_piece(int32_t id) const override {
    check(id);
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

 private:
  void check(int32_t id) const {
    if (id >= 0 && id < vocabulary()) return;
    throw UserError({.where = file_.string(),
                     .what = "token id outside the vocabulary",
                     .expected = "0 to " + std::to_string(vocabulary() - 1),
                     .found = std::to_string(id)});
  }

  std::filesystem::path file_;
  std::string hash_;
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& file) {
  return std::make_unique<SentencePieceTokenizer>(file);
}

bool is_sentencepiece(const std::filesystem::path& file) {
  try {
    load_sentencepiece(file);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace draftsmith::data
