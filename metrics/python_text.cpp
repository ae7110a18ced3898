#include "metrics/python_text.h"

#include "metrics/text.h"

namespace draftsmith::metrics {

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

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

}  // namespace draftsmith::metrics
