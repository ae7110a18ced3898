// Text as the metrics see it: UTF-8 code points and words split at Unicode white space, the way Python's str does it,
// because sacreBLEU and rouge_score define their scores through Python strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace draftsmith::metrics {

// The references of a corpus: references[line] lists the texts of that line, at least one, their number may vary.
using References = std::vector<std::vector<std::string>>;

// Code points of a UTF-8 text. A byte that belongs to no valid sequence becomes U+FFFD.
std::vector<char32_t> code_points(std::string_view text);

// True for what Python's str.split() without arguments splits at.
bool is_space(char32_t code_point);

// Words between runs of white space; views into `text`.
std::vector<std::string_view> split_words(std::string_view text);

// One reference a line, from parallel streams (files): streams[r][line]. All streams have the same number of lines.
References references_from_streams(const std::vector<std::vector<std::string>>& streams);

}  // namespace draftsmith::metrics
