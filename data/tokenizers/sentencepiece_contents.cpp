#include "data/tokenizers/sentencepiece_contents.h"

#include <cstring>
#include <functional>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/files.h"

namespace draftsmith::data {

namespace {

constexpr uint64_t kMostModelBytes = uint64_t{256} << 20;

// A field of a Protocol Buffers message: its number, and its content as bytes or as an integer.
struct MessageField {
  uint64_t number = 0;
  std::string_view bytes{};
  uint64_t integer = 0;
};

// The fields of a serialised message in turn.
class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : bytes_(bytes) {}

  // Returns the next field; nothing at the end or where the bytes are no message, see failed().
  std::optional<MessageField> next() {
    if (at_ == bytes_.size() || failed_) return std::nullopt;
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
        failed_ = true;
    }
    if (failed_) return std::nullopt;
    return field;
  }

  bool failed() const { return failed_; }

 private:
  uint64_t variable_integer() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    failed_ = true;
    return 0;
  }

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) {
      failed_ = true;
      return {};
    }
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }

  std::string_view bytes_;
  size_t at_ = 0;
  bool failed_ = false;
};

// Calls visit(field) for every field of a message. Returns false if the bytes are no message.
bool read_message(std::string_view bytes, const std::function<void(const MessageField&)>& visit) {
  MessageReader reader(bytes);
  while (const auto field = reader.next()) visit(*field);
  return !reader.failed();
}

bool read_piece(std::string_view bytes, SentencePieceContents& contents) {
  SentencePieceContents::Piece piece;
  const bool read = read_message(bytes, [&](const MessageField& field) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2 && field.bytes.size() == 4) std::memcpy(&piece.score, field.bytes.data(), 4);
    if (field.number == 3) piece.type = static_cast<int32_t>(field.integer);
  });
  contents.pieces.push_back(std::move(piece));
  return read;
}

bool read_training(std::string_view bytes, SentencePieceContents& contents) {
  return read_message(bytes, [&](const MessageField& field) {
    if (field.number == 3) contents.kind = static_cast<SentencePieceContents::Kind>(field.integer);
  });
}

bool read_normalizer(std::string_view bytes, SentencePieceContents& contents) {
  return read_message(bytes, [&](const MessageField& field) {
    if (field.number == 2) contents.character_map = field.bytes;
    if (field.number == 3) contents.adds_space = field.integer != 0;
    if (field.number == 4) contents.joins_spaces = field.integer != 0;
  });
}

}  // namespace

SentencePieceContents read_sentencepiece(const std::filesystem::path& file) {
  const std::string model = read_file(file, kMostModelBytes);
  SentencePieceContents contents;
  bool read = true;
  read &= read_message(model, [&](const MessageField& field) {
    if (field.number == 1) read &= read_piece(field.bytes, contents);
    if (field.number == 2) read &= read_training(field.bytes, contents);
    if (field.number == 3) read &= read_normalizer(field.bytes, contents);
  });
  if (read && !contents.pieces.empty()) return contents;
  throw UserError({.where = file.string(),
                   .what = "not a SentencePiece model",
                   .expected = "a file such as spiece.model or tokenizer.model",
                   .found = contents.pieces.empty() ? "no pieces" : "damaged bytes"});
}

}  // namespace draftsmith::data
