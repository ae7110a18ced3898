// Scanners for the regular expressions of the families' pre-tokenizers. A scanner is 5 to 20 times as fast as Oniguruma
// (text_pattern.h); a test compares their matches.
#pragma once

#include <cstddef>
#include <string_view>

namespace draftsmith::data {

// The expressions of Radford et al. 2019 (GPT-2, GPT-NeoX), Scao et al. 2022 (BLOOM) and Grattafiori et al. 2024
// (Llama 3), as written in tokenizer.json.
extern const std::string_view kGpt2Pattern;
extern const std::string_view kBloomPattern;
extern const std::string_view kLlama3Pattern;

// Returns the end of the match that begins at byte `at` of valid UTF-8, or `at` if none begins there.
using PatternScanner = size_t (*)(std::string_view text, size_t at);

// Returns the scanner for a regular expression, or nullptr.
PatternScanner known_scanner(std::string_view expression);

}  // namespace draftsmith::data
