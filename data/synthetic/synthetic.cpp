#include "data/synthetic/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/files.h"
#include "base/random.h"
#include "base/signals.h"

namespace draftsmith::data {
namespace {

constexpr int64_t kMinWords = 6;       // of a source sentence
constexpr double kAmbiguity = 0.25;    // share of nouns, verbs and adjectives with two translations
constexpr int64_t kMaxDepth = 2;       // of relative clauses inside relative clauses
constexpr double kSecondClause = 0.4;  // chance of a second main clause
constexpr double kZipf = 1.0;          // exponent of the word frequencies

constexpr int kGenders = 3;
constexpr int kClasses = 4;
constexpr int kTenses = 3;
constexpr int kDeterminers = 3;
constexpr int kPrepositions = 6;
constexpr int kConjunctions = 4;

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
  WordList(std::vector<Lexeme> words, double zipf) : words_(std::move(words)) {
    double total = 0;
    for (size_t rank = 0; rank < words_.size(); ++rank) {
      total += std::pow(static_cast<double>(rank) + 1, -zipf);
      cumulative_.push_back(total);
    }
  }

  const Lexeme& draw(RandomSequence& random) const {
    const double at = random.uniform() * cumulative_.back();
    const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, at);
    return words_[static_cast<size_t>(found - cumulative_.begin())];
  }

 private:
  std::vector<Lexeme> words_;
  std::vector<double> cumulative_;
};

struct Lexicon {
  WordList nouns;
  WordList transitive_verbs;
  WordList intransitive_verbs;
  WordList adjectives;
  WordList adverbs;
  WordList topics;
};

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
    return fresh([&] { return syllables(kTargetOnsets, kTargetVowels, frequent ? 1 : 2) + onset(kTargetOnsets); });
  }
  RandomSequence& random() { return random_; }

 private:
  template <class List>
  std::string onset(const List& list) {
    return std::string(list[static_cast<size_t>(random_.below(list.size()))]);
  }

  template <class Onsets, class Vowels>
  std::string syllables(const Onsets& onsets, const Vowels& vowels, int count) {
    std::string word;
    for (int i = 0; i < count; ++i) word += onset(onsets) + onset(vowels);
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

// Returns the word of a rank among `count`. The first tenth is frequent.
Lexeme make_word(WordMaker& maker, int64_t rank, int64_t count, bool ambiguous, std::string_view ending) {
  const bool frequent = rank * 10 < count;
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
    words.push_back(make_word(maker, rank, count, ambiguous, ""));
  }
  return words;
}

// Returns nouns. The ending gives the class and the class the gender, except for one noun in eight.
std::vector<Lexeme> make_nouns(WordMaker& maker, int64_t count) {
  std::vector<Lexeme> words;
  for (int64_t rank = 0; rank < count; ++rank) {
    const bool ambiguous = maker.random().uniform() < kAmbiguity;
    const auto ending = static_cast<size_t>(maker.random().below(kClassEndings.size()));
    const int exception = maker.random().below(8) == 0 ? 1 : 0;
    Lexeme word = make_word(maker, rank, count, ambiguous, kClassEndings[ending]);
    word.word_class = static_cast<int>(ending / 2);
    word.gender[0] = (word.word_class + exception) % kGenders;
    word.gender[1] = ambiguous ? (word.gender[0] + 1) % kGenders : word.gender[0];
    words.push_back(std::move(word));
  }
  return words;
}

std::vector<Lexeme> make_topics(WordMaker& maker) {
  std::vector<Lexeme> words = plain_words(maker, 12, 0);
  for (size_t i = 0; i < words.size(); ++i) words[i].word_class = static_cast<int>(i % 2);
  return words;
}

// Returns the dictionary of a seed. All words of a language are distinct.
Lexicon make_lexicon(const SyntheticOptions& options) {
  WordMaker maker(options.seed);
  const auto all = static_cast<double>(options.vocabulary);
  const auto share = [all](double part) { return std::max<int64_t>(4, std::llround(part * all)); };
  const auto words = [&](double part, double ambiguity) {
    return WordList(plain_words(maker, share(part), ambiguity), kZipf);
  };
  // Braces evaluate in order, so the dictionary does not depend on the compiler.
  return Lexicon{.nouns = WordList(make_nouns(maker, share(0.45)), kZipf),
                 .transitive_verbs = words(0.17, kAmbiguity),
                 .intransitive_verbs = words(0.10, kAmbiguity),
                 .adjectives = words(0.18, kAmbiguity),
                 .adverbs = words(0.10, 0),
                 .topics = WordList(make_topics(maker), 0)};
}

struct Clause;

// A noun with determiner, adjectives and relative clause, or a pronoun (`noun` null) for the first clause's subject.
struct NounPhrase {
  const Lexeme* noun = nullptr;
  bool plural = false;
  int determiner = 0;
  std::vector<const Lexeme*> adjectives{};
  std::unique_ptr<Clause> relative{};  // its missing subject or object is this noun
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
  int preposition = 0;  // of `place`
  std::unique_ptr<NounPhrase> place{};
};

struct Sentence {
  const Lexeme* topic = nullptr;
  bool topic_last = false;  // in the source; the target begins with the topic
  bool question = false;
  Clause first{};
  int conjunction = 0;
  std::unique_ptr<Clause> second{};
};

// Draws the trees of sentences.
class SentenceDrawer {
 public:
  SentenceDrawer(const Lexicon& lexicon, const SyntheticOptions& options, RandomSequence& random)
      : lexicon_(lexicon), options_(options), random_(random) {}

  Sentence sentence() {
    Sentence sentence;
    if (chance(0.7)) sentence.topic = &lexicon_.topics.draw(random_);
    sentence.topic_last = chance(0.5);
    sentence.question = chance(0.15);
    sentence.first = main_clause(false);
    if (!chance(kSecondClause)) return sentence;
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
    auto& adjectives = phrase.adjectives;
    while (adjectives.size() < 2 && chance(0.35)) adjectives.push_back(&lexicon_.adjectives.draw(random_));
    if (depth < kMaxDepth && chance(options_.nesting)) {
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
    if (!chance(0.3)) return clause;
    clause.preposition = static_cast<int>(random_.below(kPrepositions));
    clause.place = std::make_unique<NounPhrase>(noun_phrase(0));
    return clause;
  }

  const Lexicon& lexicon_;
  const SyntheticOptions& options_;
  RandomSequence& random_;
};

template <class List>
std::string at(const List& list, int index) {
  return std::string(list[static_cast<size_t>(index)]);
}

// Writes the source: subject, verb, object; relative clauses after their noun.
class SourceWriter {
 public:
  std::vector<std::string> write(const Sentence& sentence) {
    antecedent_plural_ = sentence.first.subject->plural;
    if (sentence.question) words_.push_back("ka");
    if (sentence.topic != nullptr && !sentence.topic_last) words_.push_back(sentence.topic->source);
    clause(sentence.first);
    if (sentence.second) {
      words_.push_back(at(kConjunctionWords, sentence.conjunction));
      clause(*sentence.second);
    }
    if (sentence.topic != nullptr && sentence.topic_last) words_.push_back(sentence.topic->source);
    words_.push_back(sentence.question ? "?" : ".");
    return std::move(words_);
  }

 private:
  static constexpr std::array<std::string_view, kDeterminers> kDeterminerWords = {"ta", "un", "sil"};
  static constexpr std::array<std::string_view, kPrepositions> kPrepositionWords = {"ap", "or", "ib", "ul", "em", "os"};
  static constexpr std::array<std::string_view, kConjunctions> kConjunctionWords = {"ed", "omi", "alu", "eba"};

  void noun_phrase(const NounPhrase& phrase) {
    if (phrase.noun == nullptr) {
      words_.push_back(antecedent_plural_ ? "ili" : "il");
      return;
    }
    words_.push_back(at(kDeterminerWords, phrase.determiner));
    for (const Lexeme* adjective : phrase.adjectives) words_.push_back(adjective->source);
    words_.push_back(phrase.noun->source + (phrase.plural ? "en" : ""));
    if (!phrase.relative) return;
    words_.push_back("ke");
    clause(*phrase.relative);
  }

  void clause(const Clause& clause) {
    if (clause.subject) noun_phrase(*clause.subject);
    if (clause.negated) words_.push_back("no");
    words_.push_back(clause.verb->source + at(kSourceTense, clause.tense));
    if (clause.object) noun_phrase(*clause.object);
    if (clause.place) {
      words_.push_back(at(kPrepositionWords, clause.preposition));
      noun_phrase(*clause.place);
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
      words_.push_back(at(kConjunctionWords, sentence.conjunction));
      main_clause(*sentence.second);
    }
    if (sentence.question) words_.push_back("mé");
    words_.push_back(sentence.question ? "?" : ".");
    return std::move(words_);
  }

 private:
  static constexpr std::array<std::string_view, kDeterminers> kDeterminerStems = {"d", "n", "s"};
  static constexpr std::array<std::string_view, kPrepositions> kPrepositionWords = {"ba", "po", "fi", "vu", "bo", "pi"};
  static constexpr std::array<std::string_view, kConjunctions> kConjunctionWords = {"ok", "ak", "ik", "uk"};

  // Gender, number and class of a noun or pronoun, for the words that agree with it.
  struct Referent {
    int gender = 0;
    bool plural = false;
    int word_class = 0;
  };

  static std::string inflected(const std::string& stem, const Referent& referent) {
    return stem + at(kAgreement, referent.gender * 2 + (referent.plural ? 1 : 0));
  }

  Referent referent(const NounPhrase& phrase) const {
    if (phrase.noun == nullptr) return antecedent_;
    return {.gender = phrase.noun->gender[sense_], .plural = phrase.plural, .word_class = phrase.noun->word_class};
  }

  void noun_phrase(const NounPhrase& phrase, bool object_case) {
    const Referent head = referent(phrase);
    if (phrase.noun == nullptr) {
      words_.push_back(inflected("r", head) + (object_case ? "m" : ""));
      return;
    }
    words_.push_back(inflected(at(kDeterminerStems, phrase.determiner), head));
    if (phrase.relative) relative_clause(*phrase.relative, head);
    // An ambiguous adjective has its second sense for the classes 2 and 3.
    const size_t sense = head.word_class >= kClasses / 2 ? 1 : 0;
    for (const Lexeme* adjective : phrase.adjectives) {
      words_.push_back(inflected(adjective->target[sense] + "l", head));
    }
    words_.push_back(inflected(phrase.noun->target[sense_], head) + (object_case ? "m" : ""));
  }

  // The verb agrees with `subject`. The class of `object` chooses its sense: the second for odd classes.
  void verb(const Clause& clause, const Referent& subject, const Referent& object) {
    const size_t sense = static_cast<size_t>((clause.transitive ? object : subject).word_class % 2);
    words_.push_back(inflected(clause.verb->target[sense] + at(kTargetTense, clause.tense), subject));
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
      noun_phrase(*clause.place, true);
      // A preposition depends on the class of its noun, too.
      const int shift = referent(*clause.place).word_class >= kClasses / 2 ? 1 : 0;
      words_.push_back(at(kPrepositionWords, (clause.preposition + shift) % kPrepositions));
    }
    if (clause.object) noun_phrase(*clause.object, true);
    verb(clause, subject, object);
    if (clause.negated) words_.push_back("ni");
  }

  std::vector<std::string> words_;
  size_t sense_ = 0;  // sense of ambiguous nouns, set by the topic
  Referent antecedent_;
};

// Returns source and target of the pair `index` of the stream `split`. It depends on all options except the sizes of
// the splits.
std::pair<std::string, std::string> draw_pair(const Lexicon& lexicon, const SyntheticOptions& options,
                                              std::string_view split, int64_t index) {
  RandomSequence random{CounterRandom(options.seed, stream_of(split) + static_cast<uint64_t>(index))};
  for (;;) {
    const Sentence sentence = SentenceDrawer(lexicon, options, random).sentence();
    const std::vector<std::string> source = SourceWriter().write(sentence);
    if (std::ssize(source) < kMinWords || std::ssize(source) > options.max_words) continue;
    const std::vector<std::string> target = TargetWriter().write(sentence);
    return {fmt::format("{}", fmt::join(source, " ")), fmt::format("{}", fmt::join(target, " "))};
  }
}

}  // namespace

Fields<SyntheticOptions> SyntheticOptions::fields() {
  return Fields<SyntheticOptions>("synthetic language options")
      .add("train", &SyntheticOptions::train, Range{1, 1e8}, Unit{"sentences"}, "Sentence pairs for training.")
      .add("valid", &SyntheticOptions::valid, Range{0, 1e6}, Unit{"sentences"}, "Sentence pairs for validation.")
      .add("test", &SyntheticOptions::test, Range{0, 1e6}, Unit{"sentences"}, "Sentence pairs for testing.")
      .add("vocabulary", &SyntheticOptions::vocabulary, Range{40, 100000}, Unit{"words"}, "Dictionary words.")
      .add("max_words", &SyntheticOptions::max_words, Range{6, 1000}, Unit{"words"}, "Longest source sentence.")
      .add("nesting", &SyntheticOptions::nesting, Range{0, 0.6}, "Chance of a relative clause at a noun.")
      .add("seed", &SyntheticOptions::seed, "Seed of the dictionary and of the sentences.");
}

void write_synthetic(const SyntheticOptions& options, const std::filesystem::path& directory) {
  make_directories(directory);
  const Lexicon lexicon = make_lexicon(options);
  std::unordered_set<std::string> held_out;
  // Test and validation come first, so that the size of the train set does not change them.
  const std::pair<std::string, int64_t> splits[] = {
      {"test", options.test}, {"valid", options.valid}, {"train", options.train}};
  for (const auto& [split, count] : splits) {
    std::string sources, targets;
    for (int64_t index = 0, taken = 0; taken < count; ++index) {
      work_point();
      if (index > 100 * (count + 1000)) {
        throw UserError({"synthetic language", "too few different sentences for the " + split + " set", "", "",
                         "raise vocabulary or max_words, or make the sets smaller"});
      }
      const auto [source, target] = draw_pair(lexicon, options, split, index);
      if (split == "train" ? held_out.contains(source) : !held_out.insert(source).second) continue;
      sources += source + "\n";
      targets += target + "\n";
      ++taken;
    }
    write_file_atomic(directory / (split + ".src"), sources);
    write_file_atomic(directory / (split + ".tgt"), targets);
  }
}

}  // namespace draftsmith::data
