#include "data/tokenizers/known_patterns.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "data/tokenizers/character_classes.h"

namespace draftsmith::data {

const std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view kBloomPattern = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";
const std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) {}

  struct Character {
    uint8_t kind;
    size_t end;
  };

  // Returns class and end of the character at `at`; class 0xff at the end of the text.
  Character next(size_t at) const {
    if (at >= text_.size()) return {0xff, at};
    const CodePoint c = code_point_at(text_, at);
    return {classes_.of(c.value), at + c.length};
  }

  // Returns the end of the run of characters of one class (0: no class) that begins at `at`.
  size_t run(size_t at, uint8_t kind) const {
    for (Character c = next(at); c.kind == kind; c = next(at)) at = c.end;
    return at;
  }

  bool at_blank(size_t at) const { return text_[at] == ' '; }
  bool at_newline(size_t at) const { return at < text_.size() && (text_[at] == '\n' || text_[at] == '\r'); }

  // Matches \s+(?!\S)|\s+ at the run of white space [at,end): the whole run at the end of the text, else all but its
  // last character.
  size_t spaces(size_t at, size_t end) const {
    if (end == text_.size()) return end;
    const size_t last = previous_character(text_, end);
    return last > at ? last : end;
  }

 private:
  std::string_view text_;
  const CharacterClasses& classes_ = CharacterClasses::table();
};

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

// Matches 's|'t|'re|'ve|'m|'ll|'d at the apostrophe at `at`.
size_t contraction(std::string_view text, size_t at, bool any_case) {
  const auto letter = [&](size_t i) {
    if (at + i >= text.size()) return '\0';
    return any_case ? lower(text[at + i]) : text[at + i];
  };
  const char first = letter(1);
  const char second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
  if (first == 'l' && second == 'l') return at + 3;
  // U+017F, the long s, equals s if case is ignored.
  if (any_case && text.substr(at + 1, 2) == "\xC5\xBF") return at + 3;
  return at;
}

size_t scan_gpt2(std::string_view text, size_t at) {
  const Scan scan(text);
  if (text[at] == '\'') {
    const size_t end = contraction(text, at, false);
    if (end > at) return end;
  }
  const auto first = scan.next(at);
  if (first.kind != kSpace) return scan.run(first.end, first.kind);
  if (scan.at_blank(at)) {
    const auto second = scan.next(first.end);
    if (second.kind != kSpace && second.kind != 0xff) return scan.run(second.end, second.kind);
  }
  return scan.spaces(at, scan.run(first.end, kSpace));
}

// Matches the last part of Llama 3's expression, \s*[\r\n]+|\s+(?!\S)|\s+, at the run of white space [at,end).
size_t newlines_or_spaces(const Scan& scan, size_t at, size_t end) {
  for (size_t i = end; i > at; --i) {
    if (scan.at_newline(i - 1)) return i;
  }
  return scan.spaces(at, end);
}

size_t scan_llama3(std::string_view text, size_t at) {
  const Scan scan(text);
  if (text[at] == '\'') {
    const size_t end = contraction(text, at, true);
    if (end > at) return end;
  }
  const auto first = scan.next(at);
  if (first.kind == kLetter) return scan.run(first.end, kLetter);
  if (first.kind == kNumber) {
    size_t end = first.end;
    for (int more = 0; more < 2; ++more) {
      const auto digit = scan.next(end);
      if (digit.kind != kNumber) break;
      end = digit.end;
    }
    return end;
  }
  const auto second = scan.next(first.end);
  if (second.kind == kLetter && !scan.at_newline(at)) return scan.run(second.end, kLetter);
  const bool blank_before = scan.at_blank(at) && second.kind == 0;
  if (first.kind == 0 || blank_before) {
    size_t end = scan.run(first.end, 0);
    while (scan.at_newline(end)) ++end;
    return end;
  }
  return newlines_or_spaces(scan, at, scan.run(first.end, kSpace));
}

// Returns whether BLOOM's class excludes a character besides white space. It excludes ( | ), meant as syntax.
bool outside_bloom(char32_t c) {
  constexpr std::array<char32_t, 14> kOutside = {U'(',   U')',   U'|',   U'.',   U',',   U'!',   U'?',
                                                 0x2026, 0x3002, 0xFF0C, 0x3001, 0x0964, 0x06D4, 0x060C};
  return std::find(kOutside.begin(), kOutside.end(), c) != kOutside.end();
}

size_t scan_bloom(std::string_view text, size_t at) {
  const CharacterClasses& classes = CharacterClasses::table();
  const auto inside_end = [&](size_t from) {
    if (from >= text.size()) return from;
    const CodePoint c = code_point_at(text, from);
    const uint8_t kind = classes.of(c.value);
    return kind == kSpace || (kind == 0 && outside_bloom(c.value)) ? from : from + c.length;
  };
  const size_t begin = text[at] == ' ' ? at + 1 : at;
  size_t end = inside_end(begin);
  if (end == begin) return at;
  for (size_t next = inside_end(end); next != end; next = inside_end(end)) end = next;
  return end;
}

}  // namespace

PatternScanner known_scanner(std::string_view expression) {
  if (expression == kGpt2Pattern) return scan_gpt2;
  if (expression == kBloomPattern) return scan_bloom;
  if (expression == kLlama3Pattern) return scan_llama3;
  return nullptr;
}

}  // namespace draftsmith::data
