// Code points and words of UTF-8 text like Python's str, because sacreBLEU and rouge_score define their scores through
// Python strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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

}  // namespace draftsmith::metrics
