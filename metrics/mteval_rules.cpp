#include "metrics/mteval_rules.h"

#include <array>
#include <string_view>
#include <utility>

#include "metrics/python_text.h"

namespace draftsmith::metrics {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_point(char c) {
  return c == '.' || c == ',';
}

bool stands_alone(char c) {
  const bool punctuation =
      (c >= ' ' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  return punctuation && c != '\'' && c != '-' && !is_point(c);
}

// Rewrites pairs of characters from left to right, without overlap: `write` outputs both if `matches(first, second)`.
template <typename Matches, typename Write>
std::string rewrite_pairs(const std::string& text, Matches matches, Write write) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    if (at + 1 < text.size() && matches(text[at], text[at + 1])) {
      write(text[at], text[at + 1], result);
      at += 2;
    } else {
      result.push_back(text[at++]);
    }
  }
  return result;
}

void write_behind(char first, char second, std::string& out) {
  out.append({first, ' ', second, ' '});
}
void write_before(char first, char second, std::string& out) {
  out.append({' ', first, ' ', second});
}

}  // namespace

void unescape_entities(std::string& text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kEntities{
      {{"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}}};
  for (const auto& [entity, character] : kEntities) replace_all(text, entity, character);
}

std::string isolate_punctuation(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (stands_alone(c)) {
      result.append({' ', c, ' '});
    } else {
      result.push_back(c);
    }
  }
  return result;
}

std::string isolate_points_and_dashes(std::string text) {
  text = rewrite_pairs(
      text, [](char first, char second) { return !is_digit(first) && is_point(second); }, write_behind);
  text = rewrite_pairs(
      text, [](char first, char second) { return is_point(first) && !is_digit(second); }, write_before);
  return rewrite_pairs(
      text, [](char first, char second) { return is_digit(first) && second == '-'; }, write_behind);
}

}  // namespace draftsmith::metrics
