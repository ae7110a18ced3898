#include "data/tokenizers/added_tokens.h"

#include <algorithm>

#include "base/utf8.h"
#include "data/tokenizers/character_classes.h"

namespace draftsmith::data {

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

int32_t AddedTokenFinder::child(int32_t node, uint8_t byte) const {
  int32_t next = nodes_[static_cast<size_t>(node)].child;
  while (next >= 0 && nodes_[static_cast<size_t>(next)].byte != byte) next = nodes_[static_cast<size_t>(next)].sibling;
  return next;
}

void AddedTokenFinder::add(const std::string& pattern, const AddedToken& token) {
  if (pattern.empty()) return;
  first_bytes_[static_cast<uint8_t>(pattern.front())] = true;
  int32_t node = 0;
  for (const char c : pattern) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      Node& parent = nodes_[static_cast<size_t>(node)];
      const int32_t sibling = parent.child;
      parent.child = next;
      nodes_.push_back({.child = -1, .sibling = sibling, .token = -1, .byte = byte});
    }
    node = next;
  }
  Node& last = nodes_[static_cast<size_t>(node)];
  if (last.token >= 0) return;
  last.token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

AddedTokenFinder::Match AddedTokenFinder::longest(std::string_view text, size_t at) const {
  Match match;
  int32_t node = 0;
  for (; at < text.size(); ++at) {
    node = child(node, static_cast<uint8_t>(text[at]));
    if (node < 0) break;
    const int32_t token = nodes_[static_cast<size_t>(node)].token;
    if (token >= 0) match = {at + 1, token};
  }
  return match;
}

void AddedTokenFinder::split(std::string_view text, std::vector<TextSegment>& segments) const {
  segments.clear();
  size_t done = 0;
  for (size_t at = 0; !empty() && at < text.size();) {
    const Match match = first_bytes_[static_cast<uint8_t>(text[at])] ? longest(text, at) : Match{};
    if (match.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(match.token)];
    size_t begin = at;
    size_t end = match.end;
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
}

}  // namespace draftsmith::data
