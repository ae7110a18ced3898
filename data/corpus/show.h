// What a corpus holds, in words: `draftsmith data show` and `draftsmith inspect`.
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
  const Tokenizer* tokenizer = nullptr;  // decodes the examples; without one their ids are shown
  int64_t examples = 3;
};

// Info, provenance, length histograms and the first examples, several lines. Errors: UserError when the tokenizer is
// not the one the corpus was made with.
std::string describe_corpus(const Corpus& corpus, const ShowOptions& options);

// Lines with a bar each: how many of the lengths lie in [0], [1], [2,3], [4,7], [8,15], ...; and their mean and
// maximum.
std::string length_histogram(const std::string& title, const std::vector<int64_t>& lengths);

}  // namespace draftsmith::data
