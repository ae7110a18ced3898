// The n-gram model of counts that lie in plain arrays: interpolated Witten-Bell smoothing of orders 1 to 3 (Witten and
// Bell 1991; Chen and Goodman 1999, §2.5), so that every context has a true distribution over the vocabulary.
//
//   q(w)      = (c(w) + T / V) / (C + T)                       1 / V where nothing was counted
//   q(w | h)  = (c(h w) + T(h) q(w | h')) / (c(h) + T(h))      q(w | h') for a context h that was not seen
//
// c(h w): how often w follows h; c(h) = sum_w c(h w); T(h): how many different w follow h; h' is h without its oldest
// token; C and T are those of the empty context, V the vocabulary. EOS is a token like any other. A row's first token
// has the context (beginning), the second (beginning, first token).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace draftsmith::data {

// The counts of one order: what follows each of C contexts, N pairs of context and token in all.
struct NgramLevel {
  std::span<const int64_t> children;  // [C+1] context c is followed by the tokens [children[c], children[c+1])
  std::span<const int32_t> totals;    // [C] c(h)
  std::span<const int32_t> best;      // [C] the token of the largest q(w | h), the lowest among equals
  std::span<const int32_t> tokens;    // [N] ascending for each context
  std::span<const int32_t> counts;    // [N] c(h w)
};

// What precedes a token. kBeginning: nothing, the row begins there.
struct NgramContext {
  static constexpr int64_t kBeginning = -1;
  int64_t before = kBeginning;  // the token before the last
  int64_t last = kBeginning;
};

// The contexts that were seen, as indices of their levels; -1: not seen, the lower order stands alone.
struct NgramNodes {
  int64_t bigram = -1;
  int64_t trigram = -1;
};

class NgramCounts {
 public:
  NgramCounts() = default;
  // `unigrams` [V] are the counts of each token. The contexts of `bigrams` are the V tokens and the beginning, those of
  // `trigrams` the bigrams; levels without contexts are not used. The arrays must fit together and outlive this.
  NgramCounts(std::span<const int32_t> unigrams, const NgramLevel& bigrams, const NgramLevel& trigrams);

  int64_t vocabulary() const { return static_cast<int64_t>(unigrams_.size()); }
  // Ids outside the vocabulary were never seen.
  NgramNodes find(const NgramContext& context) const;
  // The most likely next token, without looking at the others.
  int64_t most_likely(const NgramNodes& nodes) const;
  // q(token | context), above 0.
  double probability(const NgramNodes& nodes, int64_t token) const;
  // log q of every token, [V].
  void log_probabilities(const NgramNodes& nodes, std::span<float> out) const;

 private:
  double unigram_probability(int64_t token) const;
  // (c + T q') / (c(h) + T) at one level, given the lower order's q'.
  static double interpolate(const NgramLevel& level, int64_t context, int64_t token, double lower);
  // T / (c(h) + T): what is left for the lower order.
  static double lower_weight(const NgramLevel& level, int64_t context);

  std::span<const int32_t> unigrams_;
  NgramLevel bigrams_;
  NgramLevel trigrams_;
  double total_ = 0;  // C
  double types_ = 0;  // T
  int64_t best_ = 0;
  std::vector<float> log_unigrams_;  // [V]
};

}  // namespace draftsmith::data
