#include "data/synthetic/synthetic.h"

#include <string>
#include <unordered_set>

#include "base/error.h"
#include "base/files.h"

namespace draftsmith::data {

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

void write_synthetic(const SyntheticOptions& options, const std::filesystem::path& directory) {
  Problems problems;
  validate_options(options, "synthetic language", problems);
  problems.throw_if_any();
  make_directories(directory);
  const SyntheticLanguage language = synthetic_language(options);
  std::unordered_set<std::string> held_out;
  // `admit` returns whether a sentence may enter the split.
  const auto write = [&](const std::string& split, int64_t count, const auto& admit) {
    std::string sources;
    std::string targets;
    for (int64_t index = 0, taken = 0; taken < count; ++index) {
      if (index > 100 * (count + 1000)) {
        throw UserError({.where = "synthetic language",
                         .what = "too few different sentences for the " + split + " set",
                         .hint = "raise vocabulary or max_words, or make the sets smaller"});
      }
      const SyntheticPair pair = language(split, index);
      if (!admit(pair.source)) continue;
      sources += pair.source + "\n";
      targets += pair.target + "\n";
      ++taken;
    }
    write_file_atomic(directory / (split + ".src"), sources);
    write_file_atomic(directory / (split + ".tgt"), targets);
  };
  const auto is_new = [&](const std::string& source) { return held_out.insert(source).second; };
  // Test and validation come first, so that the size of the train set does not change them.
  write("test", options.test, is_new);
  write("valid", options.valid, is_new);
  write("train", options.train, [&](const std::string& source) { return !held_out.contains(source); });
}

}  // namespace draftsmith::data
