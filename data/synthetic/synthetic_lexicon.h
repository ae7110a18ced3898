// The words of the synthetic languages (data/synthetic/synthetic.h): a dictionary with senses, genders and classes, and
// the endings.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"

namespace draftsmith::data {

inline constexpr int kGenders = 3;
inline constexpr int kClasses = 4;
inline constexpr int kTenses = 3;
inline constexpr int kDeterminers = 3;
inline constexpr int kPrepositions = 6;
inline constexpr int kConjunctions = 4;

// A dictionary word. Only ambiguous words have a sense 1 that differs from sense 0.
struct Lexeme {
  std::string source{};
  std::array<std::string, 2> target{};  // stems, by sense
  std::array<int, 2> gender{};          // nouns, by sense
  int word_class = 0;                   // nouns: semantic class 0..3; topics: the sense of ambiguous nouns
};

// The words of a part of speech by falling frequency, drawn with Zipf's law.
class WordList {
 public:
  WordList(std::vector<Lexeme> words, double zipf);
  const Lexeme& draw(RandomSequence& random) const;
  const std::vector<Lexeme>& words() const { return words_; }

 private:
  std::vector<Lexeme> words_;
  std::vector<double> cumulative_;
};

struct LexiconOptions {
  int64_t vocabulary = 0;
  double ambiguity = 0;
  double zipf = 1;
  uint64_t seed = 0;
};

struct Lexicon {
  WordList nouns;
  WordList transitive_verbs;
  WordList intransitive_verbs;
  WordList adjectives;
  WordList adverbs;
  WordList topics;
};

// Returns the dictionary of a seed. All words of a language are distinct.
Lexicon make_lexicon(const LexiconOptions& options);

// Function words and endings of the source language.
struct SourceForms {
  static std::string noun(const Lexeme& noun, bool plural);
  static std::string verb(const Lexeme& verb, int tense);
  static std::string determiner(int index);
  static std::string preposition(int index);
  static std::string conjunction(int index);
  static std::string pronoun(bool plural);
};

// Gender, number and class of a noun or pronoun, for the words that agree with it.
struct Referent {
  int gender = 0;
  bool plural = false;
  int word_class = 0;
  int agreement() const { return gender * 2 + (plural ? 1 : 0); }
};

// Function words and endings of the target language.
struct TargetForms {
  static std::string noun(const std::string& stem, const Referent& referent, bool object_case);
  static std::string adjective(const std::string& stem, const Referent& referent);
  static std::string verb(const std::string& stem, int tense, const Referent& subject);
  static std::string determiner(int index, const Referent& referent);
  static std::string preposition(int index, const Referent& referent);
  static std::string conjunction(int index);
  static std::string pronoun(const Referent& referent, bool object_case);
};

}  // namespace draftsmith::data
