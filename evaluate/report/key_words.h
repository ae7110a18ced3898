// Plain words for keys of results and options on pages.
#pragma once

#include <algorithm>
#include <span>
#include <string>

namespace draftsmith::evaluate {

struct KeyWords {
  const char* key;
  const char* words;
};

// Returns the table's words for a key, or the key with spaces.
inline std::string words_of(std::span<const KeyWords> table, std::string key) {
  const auto found = std::ranges::find(table, key, [](const KeyWords& one) { return std::string(one.key); });
  if (found != table.end()) return found->words;
  std::ranges::replace(key, '_', ' ');
  return key;
}

}  // namespace draftsmith::evaluate
