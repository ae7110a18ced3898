#include "data/synthetic/synthetic.h"

#include <numeric>
#include <unordered_set>

#include "base/error.h"
#include "base/files.h"
#include "base/random.h"
#include "data/synthetic/synthetic_grammar.h"

namespace draftsmith::data {

namespace {

// Attempts to draw a sentence of allowed length before the options count as impossible.
constexpr int kAttempts = 2000;

std::string sentence_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += text.empty() ? word : " " + word;
  return text;
}

}  // namespace

Fields<SyntheticOptions> SyntheticOptions::fields() {
  return Fields<SyntheticOptions>("synthetic language options")
      .add("train", &SyntheticOptions::train, Range{1, 1e8}, Unit{"sentences"}, "Sentence pairs for training.")
      .add("valid", &SyntheticOptions::valid, Range{0, 1e6}, Unit{"sentences"}, "Sentence pairs for validation.")
      .add("test", &SyntheticOptions::test, Range{0, 1e6}, Unit{"sentences"}, "Sentence pairs for testing.")
      .add("vocabulary", &SyntheticOptions::vocabulary, Range{40, 100000}, Unit{"words"},
           "Dictionary words of the source language, function words not counted.")
      .add("min_words", &SyntheticOptions::min_words, Range{3, 100}, Unit{"words"}, "Shortest source sentence.")
      .add("max_words", &SyntheticOptions::max_words, Range{6, 1000}, Unit{"words"}, "Longest source sentence.")
      .add("ambiguity", &SyntheticOptions::ambiguity, Range{0, 1},
           "Share of nouns, verbs and adjectives with two translations, chosen by other words of the sentence.")
      .add("nesting", &SyntheticOptions::nesting, Range{0, 0.6},
           "Chance that a noun has a relative clause, which stands on its other side in the target.")
      .add("max_depth", &SyntheticOptions::max_depth, Range{0, 8}, Unit{"clauses"},
           "Most relative clauses inside each other.")
      .add("second_clause", &SyntheticOptions::second_clause, Range{0, 1},
           "Chance of a second main clause, with pronouns for the subject of the first.")
      .add("zipf", &SyntheticOptions::zipf, Range{0, 3},
           "Exponent of the word frequencies: the larger, the longer the tail of rare words.")
      .add("seed", &SyntheticOptions::seed, "Seed of the dictionary and of the sentences.")
      .check([](const SyntheticOptions& options, const std::string& where, Problems& problems) {
        if (options.min_words <= options.max_words) return;
        problems.add({.where = where,
                      .what = "min_words is larger than max_words",
                      .found = std::to_string(options.min_words) + " and " + std::to_string(options.max_words)});
      });
}

struct SyntheticLanguage::Impl {
  explicit Impl(const SyntheticOptions& given)
      : options(given),
        lexicon(make_lexicon(
            {.vocabulary = given.vocabulary, .ambiguity = given.ambiguity, .zipf = given.zipf, .seed = given.seed})),
        grammar{.nesting = given.nesting, .max_depth = given.max_depth, .second_clause = given.second_clause} {}

  SyntheticOptions options;
  Lexicon lexicon;
  GrammarOptions grammar;
};

SyntheticLanguage::SyntheticLanguage(const SyntheticOptions& options) {
  Problems problems;
  validate_options(options, "synthetic language", problems);
  problems.throw_if_any();
  impl_ = std::make_unique<Impl>(options);
}

SyntheticLanguage::~SyntheticLanguage() = default;

SyntheticPair SyntheticLanguage::pair(std::string_view split, int64_t index) const {
  const uint64_t stream = stream_of(split) + static_cast<uint64_t>(index);
  RandomSequence random{CounterRandom(impl_->options.seed, stream)};
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Sentence sentence = draw_sentence(impl_->lexicon, impl_->grammar, random);
    const std::vector<std::string> source = source_words(sentence);
    const auto words = static_cast<int64_t>(source.size());
    if (words < impl_->options.min_words || words > impl_->options.max_words) continue;
    return {.source = sentence_text(source), .target = sentence_text(target_words(sentence))};
  }
  throw UserError(
      {.where = "synthetic language",
       .what = "no sentence of the allowed length found",
       .expected = "a range of lengths that the grammar reaches",
       .found = std::to_string(impl_->options.min_words) + " to " + std::to_string(impl_->options.max_words) + " words",
       .hint = "widen min_words and max_words, or raise nesting and second_clause for longer sentences"});
}

SyntheticText generate_pairs(const SyntheticOptions& options) {
  const SyntheticLanguage language(options);
  SyntheticText text;
  std::unordered_set<std::string> held_out;
  // `admit` returns whether a sentence may enter the split.
  const auto fill = [&](std::string_view split, int64_t count, std::vector<SyntheticPair>& pairs, const auto& admit) {
    for (int64_t index = 0; static_cast<int64_t>(pairs.size()) < count; ++index) {
      if (index > 100 * (count + 1000)) {
        throw UserError({.where = "synthetic language",
                         .what = "too few different sentences for the " + std::string(split) + " set",
                         .hint = "raise vocabulary or max_words, or make the sets smaller"});
      }
      SyntheticPair pair = language.pair(split, index);
      if (admit(pair.source)) pairs.push_back(std::move(pair));
    }
  };
  const auto is_new = [&](const std::string& source) { return held_out.insert(source).second; };
  const auto is_not_held_out = [&](const std::string& source) { return !held_out.contains(source); };
  // Test and validation come first, so that the size of the train set does not change them.
  fill("test", options.test, text.test, is_new);
  fill("valid", options.valid, text.valid, is_new);
  fill("train", options.train, text.train, is_not_held_out);
  return text;
}

void write_synthetic(const SyntheticOptions& options, const std::filesystem::path& directory) {
  const SyntheticText text = generate_pairs(options);
  make_directories(directory);
  const auto write = [&](const std::string& split, const std::vector<SyntheticPair>& pairs) {
    std::string sources;
    std::string targets;
    for (const SyntheticPair& pair : pairs) {
      sources += pair.source + "\n";
      targets += pair.target + "\n";
    }
    write_file_atomic(directory / (split + ".src"), sources);
    write_file_atomic(directory / (split + ".tgt"), targets);
  };
  write("train", text.train);
  write("valid", text.valid);
  write("test", text.test);
}

}  // namespace draftsmith::data
