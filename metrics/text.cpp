#include "metrics/text.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "base/utf8.h"

namespace draftsmith::metrics {
namespace {

// Returns the character at byte `at`; an ill-formed byte is a character of its own.
CodePoint character_at(std::string_view text, size_t at) {
  CodePoint c = code_point_at(text, at);
  if (!c.valid) c.length = 1;
  return c;
}

}  // namespace

std::vector<char32_t> code_points(std::string_view text) {
  std::vector<char32_t> result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint next = character_at(text, at);
    result.push_back(next.value);
    at += next.length;
  }
  return result;
}

bool is_space(char32_t c) {
  return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint next = character_at(text, at);
    if (is_space(next.value)) {
      if (at > begin) words.push_back(text.substr(begin, at - begin));
      begin = at + next.length;
    }
    at += next.length;
  }
  if (text.size() > begin) words.push_back(text.substr(begin));
  return words;
}

References references_from_streams(const std::vector<std::vector<std::string>>& streams) {
  if (streams.empty()) throw std::logic_error("references_from_streams: no stream");
  References references(streams.front().size());
  for (const auto& stream : streams) {
    if (stream.size() != references.size()) throw std::logic_error("references_from_streams: unequal streams");
    for (size_t line = 0; line < stream.size(); ++line) references[line].push_back(stream[line]);
  }
  return references;
}

std::string_view right_stripped(std::string_view text) {
  const auto words = split_words(text);
  if (words.empty()) return {};
  return text.substr(0, static_cast<size_t>(words.back().data() + words.back().size() - text.data()));
}

std::string_view stripped(std::string_view text) {
  const std::string_view right = right_stripped(text);
  const auto words = split_words(right);
  return words.empty() ? right : right.substr(static_cast<size_t>(words.front().data() - right.data()));
}

std::vector<std::string> words_of(std::string_view text) {
  const auto words = split_words(text);
  return {words.begin(), words.end()};
}

std::vector<Ngram> sorted_ngrams(std::span<const uint32_t> symbols, size_t order) {
  std::vector<Ngram> ngrams;
  for (size_t begin = 0; begin + order <= symbols.size(); ++begin) {
    std::ranges::copy(symbols.subspan(begin, order), ngrams.emplace_back().begin());
  }
  std::ranges::sort(ngrams);
  return ngrams;
}

int64_t count_matches(const std::vector<Ngram>& a, const std::vector<Ngram>& b) {
  std::vector<Ngram> common;
  std::ranges::set_intersection(a, b, std::back_inserter(common));
  return std::ssize(common);
}

}  // namespace draftsmith::metrics
