// BLEU's tokenizers made of fixed rules, as in sacreBLEU 2.6: none (white space), char, 13a (mteval-v13a), intl
// (mteval-v14 international) and zh.
#pragma once

#include <memory>

#include "metrics/bleu_tokenizer.h"

namespace draftsmith::metrics {

std::unique_ptr<const BleuTokenizer> make_white_space_tokenizer();
std::unique_ptr<const BleuTokenizer> make_character_tokenizer();
std::unique_ptr<const BleuTokenizer> make_13a_tokenizer();
// Punctuation and symbols of all scripts are tokens; punctuation between two digits of any script is not split.
std::unique_ptr<const BleuTokenizer> make_international_tokenizer();
// Chinese characters and East Asian punctuation are tokens; 13a's rules split the rest.
std::unique_ptr<const BleuTokenizer> make_chinese_tokenizer();

}  // namespace draftsmith::metrics
