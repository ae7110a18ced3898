// Methods of Python's str on UTF-8 text, because sacreBLEU's tokenizers are made of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace draftsmith::metrics {

// Returns the text without white space at its end: str.rstrip().
std::string_view right_stripped(std::string_view text);

// Returns the text without white space at both ends: str.strip().
std::string_view stripped(std::string_view text);

// Returns the words between runs of white space: str.split().
std::vector<std::string> words_of(std::string_view text);

// Replaces each occurrence of `from`, from left to right: str.replace().
void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace draftsmith::metrics
