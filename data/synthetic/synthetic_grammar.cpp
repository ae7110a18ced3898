#include "data/synthetic/synthetic_grammar.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

namespace draftsmith::data {

namespace {

constexpr std::array<std::string_view, 14> kSourceOnsets = {"p", "t", "k", "s", "m", "n", "l",
                                                            "r", "b", "d", "g", "f", "v", "st"};
constexpr std::array<std::string_view, 5> kSourceVowels = {"a", "e", "i", "o", "u"};
constexpr std::array<std::string_view, 14> kTargetOnsets = {"h", "j", "w", "č",  "x",  "q", "y",
                                                            "z", "ň", "š", "kw", "tr", "ž", "gh"};
constexpr std::array<std::string_view, 5> kTargetVowels = {"ä", "ö", "ü", "é", "å"};

// The last syllable of a source noun gives its class; each class has two syllables.
constexpr std::array<std::string_view, 2 * kClasses> kClassEndings = {"mar", "dol", "nis", "tun",
                                                                      "ket", "vor", "zel", "pim"};

// Endings by gender and number; they are short and become pieces of their own.
constexpr std::array<std::string_view, 6> kAgreement = {"a", "an", "e", "en", "u", "un"};
constexpr std::array<std::string_view, kTenses> kTargetTense = {"it", "ov", "el"};
constexpr std::array<std::string_view, kTenses> kSourceTense = {"", "ed", "il"};

// Generates distinct synthetic words.
class WordMaker {
 public:
  explicit WordMaker(uint64_t seed) : random_{CounterRandom(seed, "synthetic/words")} {}

  // Returns a new word of the source language. Frequent words are shorter.
  std::string source(bool frequent, std::string_view ending) {
    return fresh([&] { return syllables(kSourceOnsets, kSourceVowels, frequent ? 1 : 2) + std::string(ending); });
  }
  std::string target(bool frequent) {
    return fresh(
        [&] { return syllables(kTargetOnsets, kTargetVowels, frequent ? 1 : 2) + std::string(onset(kTargetOnsets)); });
  }
  RandomSequence& random() { return random_; }

 private:
  template <class List>
  std::string_view onset(const List& list) {
    return list[static_cast<size_t>(random_.below(list.size()))];
  }

  template <class Onsets, class Vowels>
  std::string syllables(const Onsets& onsets, const Vowels& vowels, int count) {
    std::string word;
    for (int i = 0; i < count; ++i) word += std::string(onset(onsets)) + std::string(onset(vowels));
    return word;
  }

  // Draws until the word is new. Adds a syllable whenever the shorter words seem exhausted.
  template <class Make>
  std::string fresh(const Make& make) {
    std::string word = make();
    for (int attempt = 1; !used_.insert(word).second; ++attempt) {
      if (attempt % 8 != 0) word.clear();
      word.append(make());
    }
    return word;
  }

  RandomSequence random_;
  std::set<std::string> used_;
};

bool is_frequent(int64_t rank, int64_t count) {
  return rank * 10 < count;
}

Lexeme make_word(WordMaker& maker, bool frequent, bool ambiguous, std::string_view ending) {
  Lexeme word;
  word.source = maker.source(frequent, ending);
  word.target[0] = maker.target(frequent);
  word.target[1] = ambiguous ? maker.target(frequent) : word.target[0];
  return word;
}

// Returns words of a part of speech without classes and genders.
std::vector<Lexeme> plain_words(WordMaker& maker, int64_t count, double ambiguity) {
  std::vector<Lexeme> words;
  for (int64_t rank = 0; rank < count; ++rank) {
    const bool ambiguous = maker.random().uniform() < ambiguity;
    words.push_back(make_word(maker, is_frequent(rank, count), ambiguous, ""));
  }
  return words;
}

// Returns nouns. The ending gives the class and the class the gender, except for one noun in eight.
std::vector<Lexeme> make_nouns(WordMaker& maker, int64_t count, double ambiguity) {
  std::vector<Lexeme> words;
  for (int64_t rank = 0; rank < count; ++rank) {
    const bool ambiguous = maker.random().uniform() < ambiguity;
    const auto ending = static_cast<size_t>(maker.random().below(kClassEndings.size()));
    const int exception = maker.random().below(8) == 0 ? 1 : 0;
    Lexeme word = make_word(maker, is_frequent(rank, count), ambiguous, kClassEndings[ending]);
    word.word_class = static_cast<int>(ending / 2);
    word.gender[0] = (word.word_class + exception) % kGenders;
    word.gender[1] = ambiguous ? (word.gender[0] + 1) % kGenders : word.gender[0];
    words.push_back(std::move(word));
  }
  return words;
}

std::vector<Lexeme> make_topics(WordMaker& maker) {
  constexpr int64_t kTopics = 12;
  std::vector<Lexeme> words = plain_words(maker, kTopics, 0);
  for (size_t i = 0; i < words.size(); ++i) words[i].word_class = static_cast<int>(i % 2);
  return words;
}

int64_t share(const LexiconOptions& options, double part) {
  return std::max<int64_t>(4, std::llround(part * static_cast<double>(options.vocabulary)));
}

template <class List>
std::string_view at(const List& list, int index) {
  return list[static_cast<size_t>(index)];
}

std::string join(std::string_view a, std::string_view b) {
  return std::string(a) + std::string(b);
}

class SentenceDrawer {
 public:
  SentenceDrawer(const Lexicon& lexicon, const GrammarOptions& options, RandomSequence& random)
      : lexicon_(lexicon), options_(options), random_(random) {}

  Sentence sentence() {
    Sentence sentence;
    if (chance(0.7)) sentence.topic = &lexicon_.topics.draw(random_);
    sentence.topic_last = chance(0.5);
    sentence.question = chance(0.15);
    sentence.first = main_clause(false);
    if (!chance(options_.second_clause)) return sentence;
    sentence.conjunction = static_cast<int>(random_.below(kConjunctions));
    sentence.second = std::make_unique<Clause>(main_clause(true));
    return sentence;
  }

 private:
  bool chance(double probability) { return random_.uniform() < probability; }

  NounPhrase noun_phrase(int64_t depth) {
    NounPhrase phrase;
    phrase.noun = &lexicon_.nouns.draw(random_);
    phrase.plural = chance(0.35);
    phrase.determiner = static_cast<int>(random_.below(kDeterminers));
    while (phrase.adjectives.size() < 2 && chance(0.35))
      phrase.adjectives.push_back(&lexicon_.adjectives.draw(random_));
    if (depth < options_.max_depth && chance(options_.nesting)) {
      phrase.relative = std::make_unique<Clause>(relative_clause(depth + 1));
    }
    return phrase;
  }

  void draw_verb(Clause& clause, bool transitive) {
    clause.transitive = transitive;
    clause.verb = &(transitive ? lexicon_.transitive_verbs : lexicon_.intransitive_verbs).draw(random_);
    clause.tense = static_cast<int>(random_.below(kTenses));
  }

  Clause relative_clause(int64_t depth) {
    Clause clause;
    const bool subject_missing = chance(0.5);
    draw_verb(clause, !subject_missing || chance(0.7));
    if (!subject_missing) clause.subject = std::make_unique<NounPhrase>(noun_phrase(depth));
    if (subject_missing && clause.transitive) clause.object = std::make_unique<NounPhrase>(noun_phrase(depth));
    return clause;
  }

  Clause main_clause(bool pronouns) {
    Clause clause;
    draw_verb(clause, chance(0.65));
    const bool pronoun_subject = pronouns && chance(0.6);
    clause.subject = std::make_unique<NounPhrase>(pronoun_subject ? NounPhrase() : noun_phrase(0));
    if (clause.transitive) {
      const bool pronoun_object = pronouns && !pronoun_subject && chance(0.6);
      clause.object = std::make_unique<NounPhrase>(pronoun_object ? NounPhrase() : noun_phrase(0));
    }
    clause.negated = chance(0.15);
    if (chance(0.3)) clause.adverb = &lexicon_.adverbs.draw(random_);
    if (chance(0.3)) {
      const int preposition = static_cast<int>(random_.below(kPrepositions));
      clause.place = PrepositionPhrase{.preposition = preposition, .noun = noun_phrase(0)};
    }
    return clause;
  }

  const Lexicon& lexicon_;
  const GrammarOptions& options_;
  RandomSequence& random_;
};

// Writes the source: subject, verb, object; relative clauses after their noun.
class SourceWriter {
 public:
  std::vector<std::string> write(const Sentence& sentence) {
    antecedent_plural_ = sentence.first.subject->plural;
    if (sentence.question) words_.push_back("ka");
    if (sentence.topic != nullptr && !sentence.topic_last) words_.push_back(sentence.topic->source);
    clause(sentence.first);
    if (sentence.second) {
      words_.push_back(SourceForms::conjunction(sentence.conjunction));
      clause(*sentence.second);
    }
    if (sentence.topic != nullptr && sentence.topic_last) words_.push_back(sentence.topic->source);
    words_.push_back(sentence.question ? "?" : ".");
    return std::move(words_);
  }

 private:
  void noun_phrase(const NounPhrase& phrase) {
    if (phrase.noun == nullptr) {
      words_.push_back(SourceForms::pronoun(antecedent_plural_));
      return;
    }
    words_.push_back(SourceForms::determiner(phrase.determiner));
    for (const Lexeme* adjective : phrase.adjectives) words_.push_back(adjective->source);
    words_.push_back(SourceForms::noun(*phrase.noun, phrase.plural));
    if (!phrase.relative) return;
    words_.push_back("ke");
    clause(*phrase.relative);
  }

  void clause(const Clause& clause) {
    if (clause.subject) noun_phrase(*clause.subject);
    if (clause.negated) words_.push_back("no");
    words_.push_back(SourceForms::verb(*clause.verb, clause.tense));
    if (clause.object) noun_phrase(*clause.object);
    if (clause.place) {
      words_.push_back(SourceForms::preposition(clause.place->preposition));
      noun_phrase(clause.place->noun);
    }
    if (clause.adverb != nullptr) words_.push_back(clause.adverb->source);
  }

  std::vector<std::string> words_;
  bool antecedent_plural_ = false;
};

// Writes the target: verb last, relative clauses between determiner and noun, all words inflected.
class TargetWriter {
 public:
  std::vector<std::string> write(const Sentence& sentence) {
    if (sentence.topic != nullptr) {
      sense_ = static_cast<size_t>(sentence.topic->word_class);
      words_.push_back(sentence.topic->target[0]);
    }
    antecedent_ = referent(*sentence.first.subject);
    main_clause(sentence.first);
    if (sentence.second) {
      words_.push_back(TargetForms::conjunction(sentence.conjunction));
      main_clause(*sentence.second);
    }
    if (sentence.question) words_.push_back("mé");
    words_.push_back(sentence.question ? "?" : ".");
    return std::move(words_);
  }

 private:
  Referent referent(const NounPhrase& phrase) const {
    if (phrase.noun == nullptr) return antecedent_;
    return {.gender = phrase.noun->gender[sense_], .plural = phrase.plural, .word_class = phrase.noun->word_class};
  }

  void noun_phrase(const NounPhrase& phrase, bool object_case) {
    const Referent head = referent(phrase);
    if (phrase.noun == nullptr) {
      words_.push_back(TargetForms::pronoun(head, object_case));
      return;
    }
    words_.push_back(TargetForms::determiner(phrase.determiner, head));
    if (phrase.relative) relative_clause(*phrase.relative, head);
    // An ambiguous adjective has its second sense for the classes 2 and 3.
    const size_t sense = head.word_class >= kClasses / 2 ? 1 : 0;
    for (const Lexeme* adjective : phrase.adjectives) {
      words_.push_back(TargetForms::adjective(adjective->target[sense], head));
    }
    words_.push_back(TargetForms::noun(phrase.noun->target[sense_], head, object_case));
  }

  // The verb agrees with `subject`. The class of `object` chooses its sense: the second for odd classes.
  void verb(const Clause& clause, const Referent& subject, const Referent& object) {
    const size_t sense = static_cast<size_t>((clause.transitive ? object : subject).word_class % 2);
    words_.push_back(TargetForms::verb(clause.verb->target[sense], clause.tense, subject));
  }

  void relative_clause(const Clause& clause, const Referent& head) {
    const Referent subject = clause.subject ? referent(*clause.subject) : head;
    const Referent object = clause.object ? referent(*clause.object) : head;
    if (clause.subject) noun_phrase(*clause.subject, false);
    if (clause.object) noun_phrase(*clause.object, true);
    verb(clause, subject, object);
    words_.push_back("čo");
  }

  void main_clause(const Clause& clause) {
    const Referent subject = referent(*clause.subject);
    const Referent object = clause.object ? referent(*clause.object) : subject;
    noun_phrase(*clause.subject, false);
    if (clause.adverb != nullptr) words_.push_back(clause.adverb->target[0]);
    if (clause.place) {
      noun_phrase(clause.place->noun, true);
      words_.push_back(TargetForms::preposition(clause.place->preposition, referent(clause.place->noun)));
    }
    if (clause.object) noun_phrase(*clause.object, true);
    verb(clause, subject, object);
    if (clause.negated) words_.push_back("ni");
  }

  std::vector<std::string> words_;
  size_t sense_ = 0;  // sense of ambiguous nouns, set by the topic
  Referent antecedent_;
};

}  // namespace

WordList::WordList(std::vector<Lexeme> words, double zipf) : words_(std::move(words)) {
  double total = 0;
  for (size_t rank = 0; rank < words_.size(); ++rank) {
    total += std::pow(static_cast<double>(rank) + 1, -zipf);
    cumulative_.push_back(total);
  }
}

const Lexeme& WordList::draw(RandomSequence& random) const {
  const double at = random.uniform() * cumulative_.back();
  const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, at);
  return words_[static_cast<size_t>(found - cumulative_.begin())];
}

Lexicon make_lexicon(const LexiconOptions& options) {
  WordMaker maker(options.seed);
  const auto words = [&](double part, double ambiguity) {
    return WordList(plain_words(maker, share(options, part), ambiguity), options.zipf);
  };
  // Braces evaluate in order, so the dictionary does not depend on the compiler.
  return Lexicon{.nouns = WordList(make_nouns(maker, share(options, 0.45), options.ambiguity), options.zipf),
                 .transitive_verbs = words(0.17, options.ambiguity),
                 .intransitive_verbs = words(0.10, options.ambiguity),
                 .adjectives = words(0.18, options.ambiguity),
                 .adverbs = words(0.10, 0),
                 .topics = WordList(make_topics(maker), 0)};
}

std::string SourceForms::noun(const Lexeme& noun, bool plural) {
  return plural ? noun.source + "en" : noun.source;
}

std::string SourceForms::verb(const Lexeme& verb, int tense) {
  return join(verb.source, at(kSourceTense, tense));
}

std::string SourceForms::determiner(int index) {
  constexpr std::array<std::string_view, kDeterminers> kWords = {"ta", "un", "sil"};
  return std::string(at(kWords, index));
}

std::string SourceForms::preposition(int index) {
  constexpr std::array<std::string_view, kPrepositions> kWords = {"ap", "or", "ib", "ul", "em", "os"};
  return std::string(at(kWords, index));
}

std::string SourceForms::conjunction(int index) {
  constexpr std::array<std::string_view, kConjunctions> kWords = {"ed", "omi", "alu", "eba"};
  return std::string(at(kWords, index));
}

std::string SourceForms::pronoun(bool plural) {
  return plural ? "ili" : "il";
}

std::string TargetForms::noun(const std::string& stem, const Referent& referent, bool object_case) {
  return stem + join(at(kAgreement, referent.agreement()), object_case ? "m" : "");
}

std::string TargetForms::adjective(const std::string& stem, const Referent& referent) {
  return stem + join("l", at(kAgreement, referent.agreement()));
}

std::string TargetForms::verb(const std::string& stem, int tense, const Referent& subject) {
  return stem + join(at(kTargetTense, tense), at(kAgreement, subject.agreement()));
}

std::string TargetForms::determiner(int index, const Referent& referent) {
  constexpr std::array<std::string_view, kDeterminers> kStems = {"d", "n", "s"};
  return join(at(kStems, index), at(kAgreement, referent.agreement()));
}

// Returns the preposition, which also depends on the class of its noun.
std::string TargetForms::preposition(int index, const Referent& referent) {
  constexpr std::array<std::string_view, kPrepositions> kWords = {"ba", "po", "fi", "vu", "bo", "pi"};
  return std::string(at(kWords, (index + (referent.word_class >= kClasses / 2 ? 1 : 0)) % kPrepositions));
}

std::string TargetForms::conjunction(int index) {
  constexpr std::array<std::string_view, kConjunctions> kWords = {"ok", "ak", "ik", "uk"};
  return std::string(at(kWords, index));
}

std::string TargetForms::pronoun(const Referent& referent, bool object_case) {
  return join("r", at(kAgreement, referent.agreement())) + (object_case ? "m" : "");
}

Sentence draw_sentence(const Lexicon& lexicon, const GrammarOptions& options, RandomSequence& random) {
  return SentenceDrawer(lexicon, options, random).sentence();
}

std::vector<std::string> source_words(const Sentence& sentence) {
  return SourceWriter().write(sentence);
}

std::vector<std::string> target_words(const Sentence& sentence) {
  return TargetWriter().write(sentence);
}

}  // namespace draftsmith::data
