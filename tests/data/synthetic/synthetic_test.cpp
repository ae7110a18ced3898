#include "data/synthetic/synthetic.h"

#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "data/synthetic/synthetic_grammar.h"
#include "data/text/readers.h"

namespace draftsmith::data {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool equal(const std::vector<SyntheticPair>& a, const std::vector<SyntheticPair>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const SyntheticPair& x, const SyntheticPair& y) {
    return x.source == y.source && x.target == y.target;
  });
}

SyntheticOptions small() {
  return {.train = 500, .valid = 50, .test = 50, .vocabulary = 200};
}

TEST(Synthetic, SameSeedGivesTheSameTextAndAnotherSeedAnother) {
  const SyntheticText a = generate_pairs(small());
  const SyntheticText b = generate_pairs(small());
  EXPECT_TRUE(equal(a.train, b.train));
  EXPECT_TRUE(equal(a.test, b.test));
  SyntheticOptions other = small();
  other.seed = 2;
  EXPECT_FALSE(equal(a.train, generate_pairs(other).train));
}

TEST(Synthetic, HeldOutSentencesOccurNowhereElse) {
  const SyntheticText text = generate_pairs(small());
  std::set<std::string> held_out;
  for (const auto* split : {&text.valid, &text.test}) {
    for (const SyntheticPair& pair : *split) EXPECT_TRUE(held_out.insert(pair.source).second) << pair.source;
  }
  for (const SyntheticPair& pair : text.train) EXPECT_FALSE(held_out.contains(pair.source));
}

TEST(Synthetic, FilesHoldTheGeneratedPairs) {
  const TemporaryDirectory directory;
  write_synthetic(small(), directory / "language");
  const SyntheticText text = generate_pairs(small());
  const std::vector<std::string> sources = read_lines(directory / "language" / "valid.src");
  const std::vector<std::string> targets = read_lines(directory / "language" / "valid.tgt");
  ASSERT_EQ(sources.size(), 50U);
  for (size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(sources[i], text.valid[i].source);
    EXPECT_EQ(targets[i], text.valid[i].target);
  }
  EXPECT_EQ(read_lines(directory / "language" / "train.tgt").size(), 500U);
}

TEST(Synthetic, ImpossibleOptionsAreErrors) {
  SyntheticOptions options = small();
  options.min_words = 30;
  EXPECT_THROW(generate_pairs(options), UserError);  // above max_words
  options.max_words = 31;
  options.nesting = 0;
  options.second_clause = 0;
  EXPECT_THROW(generate_pairs(options), UserError);  // longer than the grammar reaches
  options = small();
  options.ambiguity = 1.5;
  EXPECT_THROW(generate_pairs(options), UserError);
}

// Sentences built by hand from a dictionary, to see that the rules the header promises hold.
class Grammar : public testing::Test {
 protected:
  Grammar() : lexicon_(make_lexicon({.vocabulary = 100, .ambiguity = 1, .zipf = 1, .seed = 3})) {
    sentence_.first.subject = std::make_unique<NounPhrase>();
    sentence_.first.subject->noun = &noun(0);
    sentence_.first.verb = &lexicon_.intransitive_verbs.words()[0];
  }
  const Lexeme& noun(size_t index) const { return lexicon_.nouns.words()[index]; }
  const Lexeme& topic(int sense) const { return lexicon_.topics.words()[static_cast<size_t>(sense)]; }

  Lexicon lexicon_;
  Sentence sentence_;
};

TEST_F(Grammar, TheTopicChoosesTheNounsSenseFromEitherEnd) {
  ASSERT_NE(noun(0).target[0], noun(0).target[1]);
  for (const bool last : {false, true}) {
    for (const int sense : {0, 1}) {
      sentence_.topic = &topic(sense);
      sentence_.topic_last = last;
      const auto source = source_words(sentence_);
      EXPECT_EQ(last ? source[source.size() - 2] : source[0], topic(sense).source);
      const auto target = target_words(sentence_);
      EXPECT_EQ(target[0], topic(sense).target[0]);
      EXPECT_TRUE(target[2].starts_with(noun(0).target[static_cast<size_t>(sense)])) << target[2];
    }
  }
}

TEST_F(Grammar, TheVerbComesLastAndAgreesWithTheSubjectAcrossItsRelativeClause) {
  sentence_.first.subject->relative = std::make_unique<Clause>();
  Clause& relative = *sentence_.first.subject->relative;
  relative.transitive = true;
  relative.verb = &lexicon_.transitive_verbs.words()[0];
  relative.object = std::make_unique<NounPhrase>();
  relative.object->noun = &noun(1);
  relative.object->plural = true;
  const Referent subject = {.gender = noun(0).gender[0], .plural = false, .word_class = noun(0).word_class};
  const auto target = target_words(sentence_);
  const auto sense = static_cast<size_t>(noun(0).word_class % 2);
  EXPECT_EQ(target[target.size() - 2], TargetForms::verb(sentence_.first.verb->target[sense], 0, subject));
  // determiner, relative clause (object, verb, particle), noun
  EXPECT_EQ(target[0], TargetForms::determiner(0, subject));
  EXPECT_EQ(target[4], "čo");
  EXPECT_EQ(target[5], TargetForms::noun(noun(0).target[0], subject, false));
  const auto source = source_words(sentence_);
  EXPECT_EQ(source[1], noun(0).source);
  EXPECT_EQ(source[2], "ke");
}

}  // namespace
}  // namespace draftsmith::data
