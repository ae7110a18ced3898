#include "data/synthetic/synthetic_grammar.h"

namespace draftsmith::data {

namespace {

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
