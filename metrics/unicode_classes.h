// General categories of characters by Unicode 17, on any version of ICU from 72 (Unicode 15) on.
#pragma once

namespace draftsmith::metrics {

bool is_punctuation(char32_t c);  // P*
bool is_symbol(char32_t c);       // S*
bool is_number(char32_t c);       // N*

}  // namespace draftsmith::metrics
