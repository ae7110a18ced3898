// Describes a corpus for `draftsmith data show` and `draftsmith inspect`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

struct ShowOptions {
  const Tokenizer* tokenizer = nullptr;  // decodes the examples; null: ids are shown
  int64_t examples = 3;
};

// Returns attributes, provenance, length histograms and the first examples as lines of text. Errors: UserError if the
// corpus was made with another tokenizer.
std::string describe_corpus(const Corpus& corpus, const ShowOptions& options);

// Returns a histogram of lengths, one line with a bar for each bin [0], [1], [2,3], [4,7], [8,15], ..., with mean and
// maximum.
std::string length_histogram(const std::string& title, const std::vector<int64_t>& lengths);

}  // namespace draftsmith::data
