// Text as Python's str sees it, because sacreBLEU and rouge_score define their scores through Python strings: code
// points and words. Counts of n-grams follow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace draftsmith::metrics {

// The references of a corpus: references[line] has one or more texts; their number may vary by line.
using References = std::vector<std::vector<std::string>>;

// Returns the code points of a text. Each ill-formed byte becomes U+FFFD.
std::vector<char32_t> code_points(std::string_view text);

// Returns whether Python's str.split() without arguments splits at a character.
bool is_space(char32_t code_point);

// Returns the words between runs of white space, as views of `text`.
std::vector<std::string_view> split_words(std::string_view text);

// Returns the references of each line from parallel streams (files), streams[r][line], of equal numbers of lines.
References references_from_streams(const std::vector<std::vector<std::string>>& streams);

// ---- Methods of Python's str on UTF-8 text
// sacreBLEU's tokenizers are made of them.

// Returns the text without white space at its end: str.rstrip().
std::string_view right_stripped(std::string_view text);

// Returns the text without white space at both ends: str.strip().
std::string_view stripped(std::string_view text);

// Returns the words between runs of white space: str.split().
std::vector<std::string> words_of(std::string_view text);

// ---- N-grams in sorted lists
// Matches are clipped as BLEU, chrF and ROUGE-N ask.

// Up to six symbols in a row: numbers of words, or code points. Zeros pad shorter ones.
using Ngram = std::array<uint32_t, 6>;

// Returns the n-grams of an order.
std::vector<Ngram> sorted_ngrams(std::span<const uint32_t> symbols, size_t order);

// Returns the size of the multiset intersection of two sorted lists.
int64_t count_matches(const std::vector<Ngram>& a, const std::vector<Ngram>& b);

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

}  // namespace draftsmith::metrics
