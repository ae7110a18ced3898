#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include "base/utf8.h"
#include "data/tokenizers/bpe.h"
#include "data/tokenizers/pre_tokenizer.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {
namespace {

constexpr size_t kCharacters = 0x100 + 68;  // 68 bytes are not printable in Latin-1

constexpr bool is_printable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Returns the character of each byte: the byte itself if it is printable in Latin-1, else U+0100 and following.
constexpr std::array<char32_t, 256> make_characters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) characters[byte] = is_printable(byte) ? byte : next++;
  return characters;
}

// Returns the byte of each character, or -1.
constexpr std::array<int16_t, kCharacters> make_bytes() {
  std::array<int16_t, kCharacters> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  const auto characters = make_characters();
  for (size_t byte = 0; byte < 256; ++byte) bytes[characters[byte]] = static_cast<int16_t>(byte);
  return bytes;
}

constexpr auto kCharacterOf = make_characters();
constexpr auto kByteOf = make_bytes();

// Returns the byte of a piece such as <0xE4>, or -1.
int fallback_byte(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return -1;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
  return error == std::errc() && end == piece.data() + 5 ? static_cast<int>(byte) : -1;
}

std::string replace_each(std::string_view bytes, std::string_view by) {
  std::string text;
  while (const auto bad = invalid_utf8_offset(bytes)) {
    text += bytes.substr(0, *bad);
    text += by;
    bytes.remove_prefix(*bad + 1);
  }
  text += bytes;
  return text;
}

}  // namespace

std::optional<std::string> bytes_of_piece(std::string_view piece) {
  std::string bytes;
  for (size_t at = 0; at < piece.size();) {
    const CodePoint c = code_point_at(piece, at);
    if (c.value >= kCharacters || kByteOf[c.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kByteOf[c.value]));
    at += c.length;
  }
  return bytes;
}

std::string piece_of_bytes(std::string_view bytes) {
  std::string piece;
  for (const char byte : bytes) append_utf8(kCharacterOf[static_cast<uint8_t>(byte)], piece);
  return piece;
}

std::string repair_utf8(std::string_view bytes, InvalidBytes policy) {
  if (!invalid_utf8_offset(bytes)) return std::string(bytes);
  switch (policy) {
    case InvalidBytes::kReplaceParts:
      return replace_invalid_utf8(bytes);
    case InvalidBytes::kReplaceEach:
      return replace_each(bytes, kReplacementText);
    case InvalidBytes::kDrop:
      return replace_each(bytes, "");
    case InvalidBytes::kReplaceRun:
      break;
  }
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) text += kReplacementText;
  return text;
}

TextPiece TokenDecoder::piece(std::string_view piece) const {
  if (byte_level) {
    auto bytes = bytes_of_piece(piece);
    return {TextPiece::Kind::kBytes, bytes ? std::move(*bytes) : std::string(piece)};
  }
  std::string text(piece);
  for (const auto& [what, by] : replaced) text = replace_all(text, what, by);
  const int byte = byte_fallback ? fallback_byte(text) : -1;
  if (byte >= 0) return {TextPiece::Kind::kBytes, std::string(1, static_cast<char>(byte))};
  return {TextPiece::Kind::kText, std::move(text)};
}

std::string TokenDecoder::join(const std::vector<const TextPiece*>& pieces) const {
  std::string text;
  std::string run;
  if (byte_level) {
    for (const TextPiece* piece : pieces) text += piece->text;
    return repair_utf8(text, invalid);
  }
  if (drops_first && !pieces.empty()) {
    text = replace_all(pieces.front()->text, " ", "");
    for (size_t i = 1; i < pieces.size(); ++i) text += pieces[i]->text;
    return text;
  }
  for (const TextPiece* piece : pieces) {
    if (piece->kind == TextPiece::Kind::kBytes) {
      run += piece->text;
      continue;
    }
    text += repair_utf8(run, InvalidBytes::kReplaceRun) + piece->text;
    run.clear();
  }
  text += repair_utf8(run, InvalidBytes::kReplaceRun);
  const size_t spaces = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(std::min(spaces, strip));
}

StreamRules TokenDecoder::rules() const {
  if (byte_level) return {.invalid = invalid, .drops_leading_space = false};
  return {.invalid = InvalidBytes::kReplaceRun, .drops_leading_space = strip > 0 || drops_first};
}

namespace {

bool touches_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word_character(code_point_at(text, previous_character(text, begin)).value)) return true;
  return end < text.size() && is_word_character(code_point_at(text, end).value);
}

size_t spaces_before(std::string_view text, size_t at) {
  while (at > 0) {
    const size_t previous = previous_character(text, at);
    if (!is_white_space(code_point_at(text, previous).value)) break;
    at = previous;
  }
  return at;
}

size_t spaces_after(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint c = code_point_at(text, at);
    if (!is_white_space(c.value)) break;
    at += c.length;
  }
  return at;
}

}  // namespace

void AddedTokenFinder::add(const std::string& pattern, const AddedToken& token) {
  if (pattern.empty() || !tokens_.emplace(pattern, token).second) return;
  lengths_[static_cast<uint8_t>(pattern.front())].insert(pattern.size());
}

AddedTokenFinder::Tokens::const_iterator AddedTokenFinder::longest(std::string_view text, size_t at) const {
  for (const size_t length : lengths_[static_cast<uint8_t>(text[at])]) {
    if (const auto found = tokens_.find(text.substr(at, length)); found != tokens_.end()) return found;
  }
  return tokens_.end();
}

std::vector<AddedTokenFinder::Segment> AddedTokenFinder::split(std::string_view text) const {
  std::vector<Segment> segments;
  size_t done = 0;
  for (size_t at = 0; !tokens_.empty() && at < text.size();) {
    const auto match = longest(text, at);
    if (match == tokens_.end()) {
      ++at;
      continue;
    }
    const auto& [pattern, token] = *match;
    size_t begin = at;
    size_t end = at + pattern.size();
    at = end;
    if (token.single_word && touches_word(text, begin, end)) continue;
    if (token.lstrip) begin = spaces_before(text, begin);
    begin = std::max(begin, done);
    if (token.rstrip) end = spaces_after(text, end);
    if (done < begin) segments.push_back({done, begin, -1});
    segments.push_back({begin, std::max(begin, end), token.id});
    done = std::max(begin, end);
  }
  if (done < text.size()) segments.push_back({done, text.size(), -1});
  return segments;
}

std::string StreamDecoder::drain() {
  std::string text = repair_utf8(bytes_, rules_.invalid);
  bytes_.clear();
  return text;
}

std::string StreamDecoder::take_ready() {
  if (rules_.invalid == InvalidBytes::kReplaceRun) return {};  // one later byte may make the whole run invalid
  const size_t open = incomplete_suffix(bytes_);
  const std::string tail = bytes_.substr(bytes_.size() - open);
  bytes_.erase(bytes_.size() - open);
  std::string text = drain();
  bytes_ = tail;
  return text;
}

// Decodes the first ids together until they give text: the leading space is dropped from the first id that gives any.
std::string StreamDecoder::push_first(int32_t id, const TextPiece& piece) {
  const bool prints_nothing = piece.kind == TextPiece::Kind::kText && piece.text.empty();
  if (first_ids_.empty() && prints_nothing) return {};
  first_ids_.push_back(id);
  if (piece.kind == TextPiece::Kind::kBytes) {
    bytes_ += piece.text;
    if (rules_.invalid == InvalidBytes::kReplaceRun || incomplete_suffix(bytes_) > 0) return {};
  } else {
    bytes_.clear();
  }
  std::string text = tokenizer_.decode(first_ids_);
  if (text.empty()) return {};
  at_start_ = false;
  first_ids_.clear();
  bytes_.clear();
  return text;
}

std::string StreamDecoder::push(int32_t id) {
  const TextPiece piece = tokenizer_.text_piece(id);
  if (piece.kind == TextPiece::Kind::kNothing) return {};
  if (at_start_ && rules_.drops_leading_space) return push_first(id, piece);
  if (piece.kind == TextPiece::Kind::kBytes) {
    bytes_ += piece.text;
    return take_ready();
  }
  return drain() + piece.text;
}

std::string StreamDecoder::held() const {
  const std::string whole = bytes_.substr(0, bytes_.size() - incomplete_suffix(bytes_));
  return invalid_utf8_offset(whole) ? "" : whole;
}

std::string StreamDecoder::flush() {
  std::string text = at_start_ && rules_.drops_leading_space ? tokenizer_.decode(first_ids_) : drain();
  at_start_ = true;
  first_ids_.clear();
  bytes_.clear();
  return text;
}

}  // namespace draftsmith::data
