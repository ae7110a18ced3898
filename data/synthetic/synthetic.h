// A made-up pair of languages from a grammar: the text that quickstart and tests train on, with nothing to download.
//
// The source language is written subject-verb-object with relative clauses behind their noun; the target language is
// verb-final with relative clauses in front of it, marks case, and inflects determiners, adjectives, nouns and verbs
// for gender and number. What makes it easy for the most part and hard where depth helps:
//   * words are drawn from a Zipf distribution: a few are everywhere, most are rare;
//   * nouns have a gender in the target language, mostly given by the last syllable of the source word;
//   * ambiguous nouns have two translations of different gender, chosen by the topic word, which stands first or last
//   in the
//     source sentence, however far away; determiner, adjectives and verb then follow the chosen gender;
//   * ambiguous verbs and adjectives are chosen by the class of their object (or subject) and noun;
//   * a pronoun in the second clause takes gender and number from the subject of the first: topic, sense, gender,
//   pronoun,
//     verb is a chain of look-ups.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace draftsmith::data {

struct SyntheticOptions {
  int64_t train = 40000;
  int64_t valid = 500;
  int64_t test = 500;
  int64_t vocabulary = 800;  // dictionary words of the source language besides some 40 function words
  int64_t min_words = 6;     // of a source sentence
  int64_t max_words = 20;
  double ambiguity = 0.25;     // share of nouns, verbs and adjectives that have two translations
  double nesting = 0.2;        // chance that a noun has a relative clause
  int64_t max_depth = 2;       // of relative clauses inside relative clauses
  double second_clause = 0.4;  // chance that a sentence has a second main clause
  double zipf = 1.0;           // exponent of the word frequencies; 0: all equally frequent
  uint64_t seed = 1;
  static Fields<SyntheticOptions> fields();
};

struct SyntheticPair {
  std::string source;
  std::string target;
};

// The language: any sentence of any split without generating the others.
class SyntheticLanguage {
 public:
  // Errors: UserError for options out of range.
  explicit SyntheticLanguage(const SyntheticOptions& options);
  ~SyntheticLanguage();
  // Sentence `index` of the stream `split`. The same for equal (seed, vocabulary, shape options), whatever the sizes.
  SyntheticPair pair(std::string_view split, int64_t index) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct SyntheticText {
  std::vector<SyntheticPair> train;
  std::vector<SyntheticPair> valid;
  std::vector<SyntheticPair> test;
};

// All three splits. No source sentence of valid or test occurs in another split or twice. A larger train set begins
// with the sentences of a smaller one.
SyntheticText generate_pairs(const SyntheticOptions& options);

// Writes train.src, train.tgt, valid.src, valid.tgt, test.src and test.tgt into `directory` (created when missing).
void write_synthetic(const SyntheticOptions& options, const std::filesystem::path& directory);

}  // namespace draftsmith::data
