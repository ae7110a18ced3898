// Counts n-grams in sorted lists of keys, for the clipped matches of BLEU, chrF and ROUGE-N.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace draftsmith::metrics {

// Numbers words, so that n-grams become tuples of integers. Numbers are valid within one line's comparison.
class WordIds {
 public:
  // Returns 1, 2, ... in order of first appearance. 0 pads short n-grams.
  uint32_t id(std::string_view word) {
    return ids_.try_emplace(std::string(word), static_cast<uint32_t>(ids_.size() + 1)).first->second;
  }
  template <typename Words>
  std::vector<uint32_t> ids(const Words& words) {
    std::vector<uint32_t> result;
    result.reserve(words.size());
    for (const auto& word : words) result.push_back(id(word));
    return result;
  }

 private:
  std::unordered_map<std::string, uint32_t> ids_;
};

// Returns the occurrences of `key` in a sorted list.
template <typename Key>
int64_t count_sorted(const std::vector<Key>& sorted, const Key& key) {
  const auto [first, last] = std::equal_range(sorted.begin(), sorted.end(), key);
  return last - first;
}

// Returns the size of the multiset intersection of two sorted lists.
template <typename Key>
int64_t count_matches(const std::vector<Key>& a, const std::vector<Key>& b) {
  int64_t matches = 0;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    if (*i < *j) {
      ++i;
    } else if (*j < *i) {
      ++j;
    } else {
      ++matches, ++i, ++j;
    }
  }
  return matches;
}

}  // namespace draftsmith::metrics
