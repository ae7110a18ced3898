#include "data/tokenizers/text_normalizer.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>

#include "base/utf8.h"

namespace draftsmith::data {

namespace {

// The version of Unicode that normalisation in `tokenizers` 0.23 follows (unicode-normalization-alignments 0.1.12).
constexpr uint8_t kUnicodeMajor = 9;
// A character of an older version that became a combining mark in Unicode 12.
constexpr char32_t kLaoPaliVirama = 0x0EBA;

// Below U+0300 every character is composed and combines with no character before it.
bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
}

bool is_known(char32_t c) {
  if (c < 0x300) return true;
  if (c == kLaoPaliVirama) return false;
  UVersionInfo age = {};
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] != 0 && age[0] <= kUnicodeMajor;
}

void append_composed(std::string_view text, std::string& out) {
  if (text.empty()) return;
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = icu::Normalizer2::getNFCInstance(status);
  icu::StringByteSink<std::string> sink(&out);
  if (U_SUCCESS(status)) {
    normalizer->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink, nullptr,
                              status);
  }
  if (U_FAILURE(status)) throw std::runtime_error(std::string("ICU cannot normalise: ") + u_errorName(status));
}

}  // namespace

std::string nfc(std::string_view text) {
  std::string out;
  if (is_plain(text)) return std::string(text);
  out.reserve(text.size());
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (!is_known(c.value)) {
      append_composed(text.substr(begin, at - begin), out);
      out += text.substr(at, c.length);
      begin = at + c.length;
    }
    at += c.length;
  }
  append_composed(text.substr(begin), out);
  return out;
}

std::string replace_all(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  out.reserve(text.size());
  size_t begin = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, begin)) {
    out += text.substr(begin, at - begin);
    out += by;
    begin = at + what.size();
  }
  out += text.substr(begin);
  return out;
}

std::string TextNormalizer::operator()(std::string_view text) const {
  std::string result(text);
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kNfc:
        result = nfc(result);
        break;
      case Kind::kPrepend:
        if (!result.empty()) result.insert(0, step.text);
        break;
      case Kind::kReplace:
        result = replace_all(result, step.what, step.text);
        break;
    }
  }
  return result;
}

}  // namespace draftsmith::data
