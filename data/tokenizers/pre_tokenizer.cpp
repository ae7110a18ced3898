#include "data/tokenizers/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>
#define ONIG_ESCAPE_UCHAR_COLLISION 1  // keeps <oniguruma.h> from defining UChar, a type of ICU
#include <oniguruma.h>
#include <unicode/brkiter.h>
#include <unicode/bytestream.h>
#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/unistr.h>
#include <unicode/utext.h>

#include "base/error.h"

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

namespace {

// The rules of Precompiled. The form: the size of a double array in bytes, its units (Darts: Yata et al. 2007), then
// texts that end with 0, which leaves refer to.
class CharacterMap {
 public:
  CharacterMap(const std::string& bytes, const std::string& where) {
    uint32_t size = 0;
    if (bytes.size() > sizeof(size)) std::memcpy(&size, bytes.data(), sizeof(size));
    if (size == 0 || size % sizeof(uint32_t) != 0 || size > bytes.size() - sizeof(size)) {
      throw UserError({.where = where,
                       .what = "'precompiled_charsmap' is damaged",
                       .expected = "the size of a double array, the array, then texts",
                       .found = fmt::format("{} bytes, a double array of {}", bytes.size(), size)});
    }
    units_.resize(size / sizeof(uint32_t));
    std::memcpy(units_.data(), bytes.data() + sizeof(size), size);
    texts_ = replace_invalid_utf8(bytes.substr(sizeof(size) + size));
  }

  std::string operator()(const std::string& text) const {
    std::string out;
    size_t begin = 0;
    for (const size_t end : grapheme_ends(text)) {
      const std::string_view grapheme = std::string_view(text).substr(begin, end - begin);
      begin = end;
      const auto whole = grapheme.size() < 6 ? replacement(grapheme) : std::nullopt;
      if (whole) out += *whole;
      for (size_t at = 0; !whole && at < grapheme.size();) {
        const std::string_view character = grapheme.substr(at, code_point_at(grapheme, at).length);
        out += replacement(character).value_or(character);
        at += character.size();
      }
    }
    return out;
  }

 private:
  // Returns where the grapheme clusters of a text end, in order.
  static std::vector<size_t> grapheme_ends(const std::string& text) {
    std::vector<size_t> ends;
    UErrorCode status = U_ZERO_ERROR;
    const std::unique_ptr<UText, UText* (*)(UText*)> view(
        utext_openUTF8(nullptr, text.data(), static_cast<int64_t>(text.size()), &status), utext_close);
    const std::unique_ptr<icu::BreakIterator> breaks(
        icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
    if (U_SUCCESS(status)) breaks->setText(view.get(), status);
    if (U_FAILURE(status)) throw std::runtime_error(std::string("ICU cannot find graphemes: ") + u_errorName(status));
    while (breaks->next() != icu::BreakIterator::DONE) ends.push_back(static_cast<size_t>(breaks->current()));
    return ends;
  }

  // Returns what replaces a text: the value of the shortest key that it begins with.
  std::optional<std::string_view> replacement(std::string_view text) const {
    size_t at = double_array_offset(units_.front());
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      at ^= byte;
      if (byte == 0 || at >= units_.size()) return std::nullopt;
      const uint32_t unit = units_[at];
      if ((unit & 0x800000FF) != byte) return std::nullopt;
      at ^= double_array_offset(unit);
      if ((unit >> 8 & 1) == 0) continue;
      const size_t first = at < units_.size() ? units_[at] & 0x7FFFFFFF : texts_.size();
      if (first >= texts_.size() || (static_cast<uint8_t>(texts_[first]) & 0xC0) == 0x80) return std::nullopt;
      return std::string_view(texts_).substr(first, texts_.find('\0', first) - first);
    }
    return std::nullopt;
  }

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace

std::function<std::string(const std::string&)> precompiled(const std::string& bytes, const std::string& where) {
  return CharacterMap(bytes, where);
}

std::string normalize(const TextNormalizer& normalizer, std::string_view text) {
  std::string result(text);
  for (const auto& step : normalizer) result = step(result);
  return result;
}

namespace {

// Letters and numbers of Unicode 15 and 16. ICU knows the earlier ones.
constexpr CodePointRange kLaterLetters[] = {
    {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3}, {0x10D4A, 0x10D65},
    {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x1123F, 0x11240}, {0x11380, 0x11389}, {0x1138B, 0x1138B},
    {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113B7}, {0x113D1, 0x113D1}, {0x113D3, 0x113D3},
    {0x11BC0, 0x11BE0}, {0x11F02, 0x11F02}, {0x11F04, 0x11F10}, {0x11F12, 0x11F33}, {0x1342F, 0x1342F},
    {0x13441, 0x13446}, {0x13460, 0x143FA}, {0x16100, 0x1611D}, {0x16D40, 0x16D6C}, {0x18CFF, 0x18CFF},
    {0x1B132, 0x1B132}, {0x1B155, 0x1B155}, {0x1DF25, 0x1DF2A}, {0x1E030, 0x1E06D}, {0x1E4D0, 0x1E4EB},
    {0x1E5D0, 0x1E5ED}, {0x1E5F0, 0x1E5F0}, {0x2B739, 0x2B739}, {0x2EBF0, 0x2EE5D}, {0x31350, 0x323AF}};
constexpr CodePointRange kLaterNumbers[] = {
    {0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x11F50, 0x11F59}, {0x16130, 0x16139},
    {0x16D70, 0x16D79}, {0x1CCF0, 0x1CCF9}, {0x1D2C0, 0x1D2D3}, {0x1E4F0, 0x1E4F9}, {0x1E5F1, 0x1E5FA}};

// Returns the characters of a set of ICU's (Unicode 14, by its pattern), and the later ones.
std::vector<CodePointRange> ranges_of(const char16_t* pattern, std::span<const CodePointRange> later) {
  UErrorCode status = U_ZERO_ERROR;
  icu::UnicodeSet set(icu::UnicodeString(pattern), status);
  if (U_FAILURE(status)) throw std::runtime_error(std::string("ICU has no such set: ") + u_errorName(status));
  for (const CodePointRange& range : later)
    set.add(static_cast<UChar32>(range.first), static_cast<UChar32>(range.last));
  std::vector<CodePointRange> ranges;
  for (int32_t i = 0; i < set.getRangeCount(); ++i) {
    ranges.push_back({static_cast<char32_t>(set.getRangeStart(i)), static_cast<char32_t>(set.getRangeEnd(i))});
  }
  return ranges;
}

}  // namespace

std::span<const CodePointRange> letter_ranges() {
  static const std::vector<CodePointRange> kLetters = ranges_of(u"[[:L:]&[:age=14.0:]]", kLaterLetters);
  return kLetters;
}

std::span<const CodePointRange> number_ranges() {
  static const std::vector<CodePointRange> kNumbers = ranges_of(u"[[:N:]&[:age=14.0:]]", kLaterNumbers);
  return kNumbers;
}

bool is_word_character(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  constexpr uint32_t kMarks = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return u_isUAlphabetic(point) || (U_MASK(u_charType(point)) & kMarks) != 0 ||
         u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL);
}

namespace {

// Times that Oniguruma may go back: within one attempt to match (its own default, which `tokenizers` uses), and within
// one search, which tries every position.
constexpr unsigned long kRetriesInMatch = 10'000'000;
constexpr unsigned long kRetriesInSearch = 100'000'000;

void initialize_oniguruma() {
  static std::once_flag once;
  std::call_once(once, [] {
    OnigEncoding encoding = ONIG_ENCODING_UTF8;
    onig_initialize(&encoding, 1);
    onig_set_retry_limit_in_match(kRetriesInMatch);
    onig_set_retry_limit_in_search(kRetriesInSearch);
  });
}

const OnigUChar* bytes_of(std::string_view text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

std::string message_of(int code, OnigErrorInfo* details) {
  std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> message{};
  const int length = onig_error_code_to_str(message.data(), code, details);
  return {reinterpret_cast<const char*>(message.data()), static_cast<size_t>(length)};
}

// A class in an expression: its ranges, whether it is negated, and the bytes that name it.
struct NamedClass {
  std::span<const CodePointRange> ranges;
  bool negated = false;
  size_t length = 0;
};

// Returns the class that the escape at the beginning of `text` names, if it is one that expand_classes replaces.
std::optional<NamedClass> named_class(std::string_view text) {
  static const std::vector<CodePointRange> kWhiteSpace = ranges_of(u"[:White_Space:]", {});
  if (text.starts_with("\\s") || text.starts_with("\\S")) return NamedClass{kWhiteSpace, text[1] == 'S', 2};
  if (!text.starts_with("\\p{") && !text.starts_with("\\P{")) return std::nullopt;
  const size_t close = text.find('}');
  if (close == std::string_view::npos) return std::nullopt;
  std::string_view name = text.substr(3, close - 3);
  const bool inverted = name.starts_with('^');
  if (inverted) name.remove_prefix(1);
  const bool negated = (text[1] == 'P') != inverted;
  if (name == "L" || name == "Letter") return NamedClass{letter_ranges(), negated, close + 1};
  if (name == "N" || name == "Number") return NamedClass{number_ranges(), negated, close + 1};
  return std::nullopt;
}

std::string bracketed(const NamedClass& named) {
  std::string text = named.negated ? "[^" : "[";
  for (const CodePointRange& range : named.ranges) {
    fmt::format_to(std::back_inserter(text), "\\x{{{:X}}}-\\x{{{:X}}}", static_cast<uint32_t>(range.first),
                   static_cast<uint32_t>(range.last));
  }
  return text + "]";
}

}  // namespace

std::string expand_classes(std::string_view expression) {
  std::string expanded;
  size_t depth = 0;  // of brackets
  for (size_t at = 0; at < expression.size();) {
    const std::string_view rest = expression.substr(at);
    if (const auto named = named_class(rest)) {
      // (?i:...) adds other cases to a class in brackets, but not to \p{L} alone.
      expanded += depth > 0 ? bracketed(*named) : "(?-i:" + bracketed(*named) + ")";
      at += named->length;
      continue;
    }
    size_t length = rest[0] == '\\' && rest.size() > 1 ? 2 : 1;
    if (rest[0] == '[') {
      ++depth;
      if (rest.substr(length).starts_with('^')) ++length;
      if (rest.substr(length).starts_with(']')) ++length;  // a literal
    } else if (rest[0] == ']' && depth > 0) {
      --depth;
    }
    expanded += rest.substr(0, length);
    at += length;
  }
  return expanded;
}

const std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

[[noreturn]] void refuse_expression(const std::string& expression, const std::string& where, const std::string& what,
                                    const std::string& expected) {
  throw UserError({.where = where, .what = what, .expected = expected, .found = expression.substr(0, 200)});
}

std::vector<TextMatch> matches_of(OnigRegex regex, std::string_view text, const std::string& expression,
                                  const std::string& where) {
  std::vector<TextMatch> found;
  const std::unique_ptr<OnigRegion, void (*)(OnigRegion*)> region(onig_region_new(),
                                                                  [](OnigRegion* used) { onig_region_free(used, 1); });
  const OnigUChar* begin = bytes_of(text);
  const OnigUChar* end = begin + text.size();
  for (size_t from = 0; from <= text.size();) {
    const int code = onig_search(regex, begin, end, begin + from, end, region.get(), ONIG_OPTION_NONE);
    if (code == ONIG_MISMATCH) break;
    if (code < 0) {
      refuse_expression(expression, where, "the regular expression fails on a text: " + message_of(code, nullptr),
                        "an expression without nested repetitions of the same characters");
    }
    const TextMatch match{static_cast<size_t>(region->beg[0]), static_cast<size_t>(region->end[0])};
    const bool empty = match.begin == match.end;
    from = match.end;
    if (empty) from += from < text.size() ? code_point_at(text, from).length : 1;
    if (empty && !found.empty() && found.back().end == match.begin) continue;
    found.push_back(match);
  }
  return found;
}

}  // namespace

SplitPattern regex_pattern(std::string_view expression, const std::string& where) {
  initialize_oniguruma();
  const std::string expanded = expand_classes(expression);
  OnigRegex regex = nullptr;
  OnigErrorInfo details{};
  const int code = onig_new(&regex, bytes_of(expanded), bytes_of(expanded) + expanded.size(), ONIG_OPTION_NONE,
                            ONIG_ENCODING_UTF8, ONIG_SYNTAX_ONIGURUMA, &details);
  if (code != ONIG_NORMAL) {
    refuse_expression(std::string(expression), where,
                      "the regular expression cannot be compiled: " + message_of(code, &details),
                      "an expression in Oniguruma's syntax");
  }
  const std::shared_ptr<re_pattern_buffer> compiled(regex, onig_free);
  return [compiled, expression = std::string(expression), where](std::string_view text) {
    return matches_of(compiled.get(), text, expression, where);
  };
}

namespace {

// Digits follows Unicode 17 (Rust's char::is_numeric), which has more numbers than number_ranges().
bool is_digit(char32_t c) {
  const auto numbers = number_ranges();
  const auto range = std::lower_bound(numbers.begin(), numbers.end(), c,
                                      [](const CodePointRange& one, char32_t value) { return one.last < value; });
  return (range != numbers.end() && range->first <= c) || (c >= 0x11DE0 && c <= 0x11DE9) ||
         (c >= 0x16FF4 && c <= 0x16FF6);
}

// A part of a text, and whether a pattern matched it. Only matched parts may be empty.
struct TextPart {
  size_t begin;
  size_t end;
  bool matched;
};

// Returns matches and what lies between them.
std::vector<TextPart> parts_of(const std::vector<TextMatch>& matches, std::string_view text) {
  std::vector<TextPart> parts;
  size_t gap = 0;
  for (const TextMatch& match : matches) {
    if (gap < match.begin) parts.push_back({gap, match.begin, false});
    parts.push_back({match.begin, match.end, true});
    gap = match.end;
  }
  if (gap < text.size()) parts.push_back({gap, text.size(), false});
  return parts;
}

// Merges parts with the part before them in the list where `merges` says so of the two.
template <class Merges>
void merge_parts(std::vector<TextPart>& parts, const Merges& merges) {
  std::vector<TextPart> merged;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && merges(parts[i - 1], parts[i])) {
      merged.back().begin = std::min(merged.back().begin, parts[i].begin);
      merged.back().end = std::max(merged.back().end, parts[i].end);
    } else {
      merged.push_back(parts[i]);
    }
  }
  parts = std::move(merged);
}

void arrange(std::vector<TextPart>& parts, SplitBehavior behavior) {
  const auto only_second = [](const TextPart& one, const TextPart& other) { return other.matched && !one.matched; };
  switch (behavior) {
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kRemoved:
      std::erase_if(parts, [](const TextPart& part) { return part.matched; });
      break;
    case SplitBehavior::kMergedWithPrevious:
      merge_parts(parts, only_second);
      break;
    case SplitBehavior::kMergedWithNext:
      std::reverse(parts.begin(), parts.end());
      merge_parts(parts, only_second);
      std::reverse(parts.begin(), parts.end());
      break;
    case SplitBehavior::kContiguous:
      merge_parts(parts, [](const TextPart& one, const TextPart& other) { return one.matched == other.matched; });
      break;
  }
}

}  // namespace

SplitPattern literal_pattern(std::string literal) {
  return [literal = std::move(literal)](std::string_view text) {
    std::vector<TextMatch> found;
    for (size_t at = text.find(literal); at != std::string_view::npos; at = text.find(literal, found.back().end)) {
      found.push_back({at, at + literal.size()});
    }
    return found;
  };
}

SplitPattern digits_pattern() {
  return [](std::string_view text) {
    std::vector<TextMatch> found;
    for (size_t at = 0; at < text.size();) {
      const CodePoint c = code_point_at(text, at);
      if (is_digit(c.value)) found.push_back({at, at + c.length});
      at += c.length;
    }
    return found;
  };
}

PreTokenizerStep make_split(SplitPattern pattern, SplitBehavior behavior, bool invert) {
  return [=](Words& words, bool) {
    std::vector<std::string_view> cut;
    for (const std::string_view word : words.views) {
      std::vector<TextPart> parts = parts_of(pattern(word), word);
      for (TextPart& part : parts) part.matched = part.matched != invert;
      arrange(parts, behavior);
      for (const TextPart& part : parts) {
        if (part.begin < part.end) cut.push_back(word.substr(part.begin, part.end - part.begin));
      }
    }
    words.views = std::move(cut);
  };
}

void add_prefix_space(Words& words, bool /*at_start*/) {
  for (std::string_view& word : words.views) {
    if (!word.starts_with(' ')) word = words.storage.emplace_back(" " + std::string(word));
  }
}

PreTokenizerStep make_metaspace(std::string replacement, PrependScheme scheme, bool split) {
  const auto cut = make_split(literal_pattern(replacement), SplitBehavior::kMergedWithNext, false);
  return [=](Words& words, bool at_start) {
    for (size_t i = 0; i < words.views.size(); ++i) {
      std::string& changed = words.storage.emplace_back(replace_all(words.views[i], " ", replacement));
      const bool wanted = scheme == PrependScheme::kAlways || (scheme == PrependScheme::kFirst && at_start && i == 0);
      if (wanted && !changed.starts_with(replacement)) changed.insert(0, replacement);
      words.views[i] = changed;
    }
    if (split) cut(words, at_start);
  };
}

Words split_words(const PreTokenizer& pre_tokenizer, std::string_view text, bool at_start) {
  Words words;
  if (!text.empty()) words.views.push_back(text);
  for (const PreTokenizerStep& step : pre_tokenizer) step(words, at_start);
  return words;
}

}  // namespace draftsmith::data
