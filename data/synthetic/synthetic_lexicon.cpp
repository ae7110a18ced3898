#include "data/synthetic/synthetic_lexicon.h"

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

}  // namespace draftsmith::data
