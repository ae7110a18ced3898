#include "data/tokenizers/text_pattern.h"

#include <array>
#include <mutex>
#include <optional>
#include <span>

#include <fmt/format.h>
#define ONIG_ESCAPE_UCHAR_COLLISION 1  // keeps <oniguruma.h> from defining UChar, a type of ICU
#include <oniguruma.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/tokenizers/character_classes.h"

namespace draftsmith::data {

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

// Positions of a match and its groups, freed at the end.
struct Region {
  Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() { onig_region_free(&positions, 0); }

  OnigRegion positions{};
};

// A class in an expression: its ranges, whether it is negated, and the bytes that name it.
struct NamedClass {
  std::span<const CodePointRange> ranges;
  bool negated = false;
  size_t length = 0;
};

// Returns the class that the escape at the beginning of `text` names, if it is one that expand_classes replaces.
std::optional<NamedClass> named_class(std::string_view text) {
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

TextPattern::TextPattern(std::string_view expression, std::string where)
    : expression_(expression), where_(std::move(where)) {
  initialize_oniguruma();
  const std::string expanded = expand_classes(expression);
  OnigRegex regex = nullptr;
  OnigErrorInfo details{};
  const int code = onig_new(&regex, bytes_of(expanded), bytes_of(expanded) + expanded.size(), ONIG_OPTION_NONE,
                            ONIG_ENCODING_UTF8, ONIG_SYNTAX_ONIGURUMA, &details);
  if (code != ONIG_NORMAL) {
    throw UserError({.where = where_,
                     .what = "the regular expression cannot be compiled: " + message_of(code, &details),
                     .expected = "an expression in Oniguruma's syntax",
                     .found = expression_.substr(0, 200)});
  }
  compiled_ = {regex, onig_free};
}

std::vector<TextMatch> TextPattern::matches(std::string_view text) const {
  std::vector<TextMatch> found;
  Region region;
  const OnigUChar* begin = bytes_of(text);
  const OnigUChar* end = begin + text.size();
  for (size_t from = 0; from <= text.size();) {
    const int code = onig_search(compiled_.get(), begin, end, begin + from, end, &region.positions, ONIG_OPTION_NONE);
    if (code == ONIG_MISMATCH) break;
    if (code < 0) {
      throw UserError({.where = where_,
                       .what = "the regular expression fails on a text: " + message_of(code, nullptr),
                       .expected = "an expression without nested repetitions of the same characters",
                       .found = expression_.substr(0, 200)});
    }
    const TextMatch match{static_cast<size_t>(region.positions.beg[0]), static_cast<size_t>(region.positions.end[0])};
    const bool empty = match.begin == match.end;
    from = match.end;
    if (empty) from += from < text.size() ? code_point_at(text, from).length : 1;
    if (empty && !found.empty() && found.back().end == match.begin) continue;
    found.push_back(match);
  }
  return found;
}

}  // namespace draftsmith::data
