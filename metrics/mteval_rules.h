// Rules of NIST's mteval script for Western punctuation, which the tokenizers 13a and zh of BLEU share. They act on
// ASCII only, so bytes suffice.
#pragma once

#include <string>

namespace draftsmith::metrics {

// Replaces the entities &quot; &amp; &lt; &gt;, in this order.
void unescape_entities(std::string& text);

// Returns the text with blanks around blanks and each ASCII punctuation mark but apostrophe, comma, hyphen and full
// stop.
std::string isolate_punctuation(const std::string& text);

// Returns the text with commas and full stops set apart unless digits are on both sides, and hyphens behind digits. At
// the text's ends, the rule for the missing side does not apply.
std::string isolate_points_and_dashes(std::string text);

}  // namespace draftsmith::metrics
