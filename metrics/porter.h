// Porter's stemmer (1980) with the extensions that NLTK's PorterStemmer applies by default: ROUGE as rouge_score
// computes it is defined through exactly this variant (libstemmer's "porter" differs on about 1.6 % of word types).
#pragma once

#include <string>
#include <string_view>

namespace draftsmith::metrics {

// Returns the stem of a lower-case ASCII word. Digits count as consonants. Words of one or two letters do not change.
std::string porter_stem(std::string_view word);

}  // namespace draftsmith::metrics
