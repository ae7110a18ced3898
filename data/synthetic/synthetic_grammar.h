// Sentences of the synthetic languages (data/synthetic/synthetic.h): a tree is drawn once and written in either
// language.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "data/synthetic/synthetic_lexicon.h"

namespace draftsmith::data {

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
