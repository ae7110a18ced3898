// Porter's stemmer as NLTK has it, for ROUGE.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metrics/metric.h"

namespace draftsmith::metrics {
namespace {

using Word = std::string_view;

bool is_vowel_letter(char c) {
  return c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u';
}

// Returns for each letter whether it is a consonant. A y is one unless it follows a consonant.
std::vector<bool> consonants(Word word) {
  std::vector<bool> flags(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    flags[i] = word[i] == 'y' ? i == 0 || !flags[i - 1] : !is_vowel_letter(word[i]);
  }
  return flags;
}

// Returns Porter's m, the number of vowels followed by a consonant.
int measure(Word word) {
  const auto flags = consonants(word);
  int count = 0;
  for (size_t i = 1; i < flags.size(); ++i) count += !flags[i - 1] && flags[i] ? 1 : 0;
  return count;
}

bool has_vowel(Word word) {
  const auto flags = consonants(word);
  return std::find(flags.begin(), flags.end(), false) != flags.end();
}

bool ends_double_consonant(Word word) {
  const size_t n = word.size();
  return n >= 2 && word[n - 1] == word[n - 2] && consonants(word).back();
}

// Returns Porter's *o: the word ends in consonant, vowel, consonant other than w, x, y. NLTK adds words vowel,
// consonant.
bool ends_short(Word word) {
  const size_t n = word.size();
  const auto flags = consonants(word);
  if (n == 2) return !flags[0] && flags[1];
  if (n < 3) return false;
  const char last = word[n - 1];
  return flags[n - 3] && !flags[n - 2] && flags[n - 1] && last != 'w' && last != 'x' && last != 'y';
}

Word without(Word word, Word suffix) {
  return word.substr(0, word.size() - suffix.size());
}

std::string join(Word stem, Word ending) {
  return std::string(stem).append(ending);
}

struct Rule {
  Word suffix;
  Word replacement;
};

// Applies the first rule whose suffix matches if the stem's measure is positive. Later rules are not tried.
std::string apply_first(Word word, std::span<const Rule> rules) {
  for (const Rule& rule : rules) {
    if (!word.ends_with(rule.suffix)) continue;
    const Word stem = without(word, rule.suffix);
    return measure(stem) > 0 ? join(stem, rule.replacement) : std::string(word);
  }
  return std::string(word);
}

std::string plurals(Word word) {
  if (word.ends_with("ies")) return join(without(word, "ies"), word.size() == 4 ? "ie" : "i");
  if (word.ends_with("sses")) return std::string(without(word, "es"));
  if (word.ends_with("ss") || !word.ends_with("s")) return std::string(word);
  return std::string(without(word, "s"));
}

// Restores an e or removes a doubled consonant after -ed or -ing was removed, so that later steps match the suffix.
std::string repair(Word stem) {
  if (stem.ends_with("at") || stem.ends_with("bl") || stem.ends_with("iz")) return join(stem, "e");
  if (ends_double_consonant(stem)) {
    const char last = stem.back();
    const bool keep = last == 'l' || last == 's' || last == 'z';
    return std::string(keep ? stem : stem.substr(0, stem.size() - 1));
  }
  if (measure(stem) == 1 && ends_short(stem)) return join(stem, "e");
  return std::string(stem);
}

std::string past_and_progressive(Word word) {
  if (word.ends_with("ied")) return join(without(word, "ied"), word.size() == 4 ? "ie" : "i");
  if (word.ends_with("eed")) {
    const Word stem = without(word, "eed");
    return measure(stem) > 0 ? join(stem, "ee") : std::string(word);
  }
  for (const Word suffix : {Word("ed"), Word("ing")}) {
    if (word.ends_with(suffix) && has_vowel(without(word, suffix))) return repair(without(word, suffix));
  }
  return std::string(word);
}

std::string final_y(Word word) {
  if (!word.ends_with("y")) return std::string(word);
  const Word stem = without(word, "y");
  return stem.size() > 1 && consonants(stem).back() ? join(stem, "i") : std::string(word);
}

std::string double_suffixes(Word word) {
  static constexpr std::array<Rule, 21> kRules{
      {{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"}, {"anci", "ance"}, {"izer", "ize"},
       {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"}, {"eli", "e"},     {"ousli", "ous"},
       {"ization", "ize"}, {"ation", "ate"},   {"ator", "ate"},  {"alism", "al"},  {"iveness", "ive"},
       {"fulness", "ful"}, {"ousness", "ous"}, {"aliti", "al"},  {"iviti", "ive"}, {"biliti", "ble"},
       {"fulli", "ful"}}};
  // -alli is replaced first, and the result passes through all rules again.
  if (word.ends_with("alli") && measure(without(word, "alli")) > 0) return double_suffixes(without(word, "li"));
  // The l of -logi belongs to the stem, so that geology and archaeology are treated alike.
  if (word.ends_with("logi")) {
    return std::string(measure(without(word, "ogi")) > 0 ? without(word, "i") : word);
  }
  return apply_first(word, kRules);
}

std::string adjective_suffixes(Word word) {
  static constexpr std::array<Rule, 7> kRules{
      {{"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"}, {"ical", "ic"}, {"ful", ""}, {"ness", ""}}};
  return apply_first(word, kRules);
}

std::string single_suffixes(Word word) {
  static constexpr std::array<Word, 18> kSuffixes{"al",   "ance", "ence", "er",  "ic",  "able", "ible", "ant", "ement",
                                                  "ment", "ent",  "ou",   "ism", "ate", "iti",  "ous",  "ive", "ize"};
  if (word.ends_with("ion")) {
    const Word stem = without(word, "ion");
    const bool cut = measure(stem) > 1 && (stem.back() == 's' || stem.back() == 't');
    return std::string(cut ? stem : word);
  }
  for (const Word suffix : kSuffixes) {
    if (word.ends_with(suffix)) return std::string(measure(without(word, suffix)) > 1 ? without(word, suffix) : word);
  }
  return std::string(word);
}

std::string final_e_and_double_l(std::string word) {
  if (word.ends_with("e")) {
    const Word stem = without(word, "e");
    const int m = measure(stem);
    if (m > 1 || (m == 1 && !ends_short(stem))) word.pop_back();
  }
  if (word.ends_with("ll") && measure(Word(word).substr(0, word.size() - 1)) > 1) word.pop_back();
  return word;
}

// Irregular words with their stems.
constexpr std::array<std::pair<Word, Word>, 16> kIrregular{{{"sky", "sky"},
                                                            {"skies", "sky"},
                                                            {"dying", "die"},
                                                            {"lying", "lie"},
                                                            {"tying", "tie"},
                                                            {"news", "news"},
                                                            {"innings", "inning"},
                                                            {"inning", "inning"},
                                                            {"outings", "outing"},
                                                            {"outing", "outing"},
                                                            {"cannings", "canning"},
                                                            {"canning", "canning"},
                                                            {"howe", "howe"},
                                                            {"proceed", "proceed"},
                                                            {"exceed", "exceed"},
                                                            {"succeed", "succeed"}}};

}  // namespace

std::string porter_stem(std::string_view word) {
  for (const auto& [irregular, stem] : kIrregular) {
    if (word == irregular) return std::string(stem);
  }
  if (word.size() <= 2) return std::string(word);
  std::string stem = final_y(past_and_progressive(plurals(word)));
  return final_e_and_double_l(single_suffixes(adjective_suffixes(double_suffixes(stem))));
}

}  // namespace draftsmith::metrics
