// A synthetic pair of languages from a grammar: training text for the quickstart and the tests, without a download.
//
// The source language has the order subject-verb-object, with relative clauses after their noun. The target language
// has the verb at the end and relative clauses before their noun. It marks case and inflects determiners, adjectives,
// nouns and verbs for gender and number. Most tokens are easy to predict; the following are hard, and depth helps:
//   * Words follow a Zipf distribution: few are frequent, most are rare.
//   * Nouns have a gender in the target language, mostly given by the last syllable of the source word.
//   * Ambiguous nouns have two translations of different gender. The topic word, the first or last word of the source
//     sentence, decides between them. Determiner, adjectives and verb follow the gender.
//   * The translation of an ambiguous verb depends on the class of its object (or subject), the translation of an
//     ambiguous adjective on the class of its noun.
//   * A pronoun in the second clause has gender and number of the first clause's subject, so that topic, sense, gender,
//     pronoun and verb form a chain of look-ups.
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
