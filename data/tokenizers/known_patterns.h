// The regular expressions of the families' pre-tokenizers, written out as scanners: several times as fast as the
// general engine (text_pattern.h), and equal to it (a test compares them).
#pragma once

#include <cstddef>
#include <string_view>

namespace draftsmith::data {

// Radford et al. 2019 (GPT-2, GPT-NeoX), Scao et al. 2022 (BLOOM), Grattafiori et al. 2024 (Llama 3), as written in
// tokenizer.json.
extern const std::string_view kGpt2Pattern;
extern const std::string_view kBloomPattern;
extern const std::string_view kLlama3Pattern;

// End of the match that begins at byte `at` of valid UTF-8, or `at` when none begins there.
using PatternScanner = size_t (*)(std::string_view text, size_t at);

// The scanner that equals a regular expression, or nullptr.
PatternScanner known_scanner(std::string_view expression);

}  // namespace draftsmith::data
