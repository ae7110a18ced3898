// Words and sentences of the synthetic languages (data/synthetic/synthetic.h): a dictionary with senses, genders,
// classes and endings, and trees that are drawn once and written in either language.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
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

struct Clause;

// A noun with determiner, adjectives and relative clause, or a pronoun (`noun` null) for the first clause's subject.
struct NounPhrase {
  const Lexeme* noun = nullptr;
  bool plural = false;
  int determiner = 0;
  std::vector<const Lexeme*> adjectives{};
  std::unique_ptr<Clause> relative{};  // its missing subject or object is this noun
};

struct PrepositionPhrase {
  int preposition = 0;
  NounPhrase noun{};
};

// A clause. A relative clause lacks subject or object: the noun that it modifies takes that place.
struct Clause {
  std::unique_ptr<NounPhrase> subject{};
  std::unique_ptr<NounPhrase> object{};
  const Lexeme* verb = nullptr;
  bool transitive = false;
  int tense = 0;
  bool negated = false;
  const Lexeme* adverb = nullptr;
  std::optional<PrepositionPhrase> place{};
};

struct Sentence {
  const Lexeme* topic = nullptr;
  bool topic_last = false;  // in the source; the target begins with the topic
  bool question = false;
  Clause first{};
  int conjunction = 0;
  std::unique_ptr<Clause> second{};
};

struct GrammarOptions {
  double nesting = 0;
  int64_t max_depth = 0;
  double second_clause = 0;
};

Sentence draw_sentence(const Lexicon& lexicon, const GrammarOptions& options, RandomSequence& random);

// Returns the words of the sentence; the last is its punctuation.
std::vector<std::string> source_words(const Sentence& sentence);
std::vector<std::string> target_words(const Sentence& sentence);

}  // namespace draftsmith::data
