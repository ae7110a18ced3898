// A synthetic pair of languages from a grammar: training text for the quickstart and the tests, without a download.
//
// The source has the order subject-verb-object, with relative clauses after their noun; the target has the verb last,
// relative clauses before their noun, and all words inflected. Most tokens are easy to predict. Hard are rare words (a
// Zipf distribution) and look-ups, where depth helps: a topic word at an end of the sentence decides sense and gender
// of ambiguous nouns, which other words follow; verbs and adjectives depend on the class of their nouns.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/options.h"

namespace draftsmith::data {

struct SyntheticOptions {
  int64_t train = 40000;
  int64_t valid = 500;
  int64_t test = 500;
  int64_t vocabulary = 800;  // dictionary words of the source language besides some 40 function words
  int64_t max_words = 20;    // of a source sentence; the shortest has 6
  double nesting = 0.2;      // chance that a noun has a relative clause
  uint64_t seed = 1;
  static Fields<SyntheticOptions> fields();
};

// Writes train.src, train.tgt, valid.src, valid.tgt, test.src and test.tgt into `directory`, which is created if
// missing. No source sentence of valid or test occurs twice or in another split. A larger train set begins with the
// sentences of a smaller one. Errors: UserError for too few different sentences.
void write_synthetic(const SyntheticOptions& options, const std::filesystem::path& directory);

}  // namespace draftsmith::data
