// N-gram model over counts in plain arrays, orders 1 to 3, with interpolated Witten-Bell smoothing (Witten and Bell
// 1991; Chen and Goodman 1999, §2.5): every context has a true distribution over the vocabulary.
//
//   q(w)      = (c(w) + T / V) / (C + T)                       1 / V if nothing was counted
//   q(w | h)  = (c(h w) + T(h) q(w | h')) / (c(h) + T(h))      q(w | h') for a context h that was not seen
//
// c(h w): how often w follows h; c(h) = sum_w c(h w); T(h): how many different w follow h; h' is h without its oldest
// token; C and T are the values of the empty context, V is the vocabulary. EOS is a token like any other. The context
// of a row's first token is (beginning), the context of its second token (beginning, first token).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace draftsmith::data {

// The counts of one order: C contexts and N pairs of context and next token.
struct NgramLevel {
  std::span<const int64_t> children;  // [C+1] context c is followed by the tokens [children[c], children[c+1])
  std::span<const int32_t> totals;    // [C] c(h)
  std::span<const int32_t> best;      // [C] the token of the largest q(w | h), the lowest among equals
  std::span<const int32_t> tokens;    // [N] ascending for each context
  std::span<const int32_t> counts;    // [N] c(h w)
};

// The two tokens before a token. kBeginning stands before the row's first token.
struct NgramContext {
  static constexpr int64_t kBeginning = -1;
  int64_t before = kBeginning;  // the token before the last
  int64_t last = kBeginning;
};

// The indices of seen contexts in their levels; -1: not seen, so that the lower order alone counts.
struct NgramNodes {
  int64_t bigram = -1;
  int64_t trigram = -1;
};

class NgramCounts {
 public:
  NgramCounts() = default;
  // `unigrams` [V] are the counts of each token. The contexts of `bigrams` are the V tokens and the beginning, the
  // contexts of `trigrams` are the bigrams. A level without contexts is not used. The arrays must fit together and
  // outlive this.
  NgramCounts(std::span<const int32_t> unigrams, const NgramLevel& bigrams, const NgramLevel& trigrams);

  int64_t vocabulary() const { return static_cast<int64_t>(unigrams_.size()); }
  // Returns the seen contexts. Ids outside the vocabulary were never seen.
  NgramNodes find(const NgramContext& context) const;
  // Returns the most likely next token, in constant time.
  int64_t most_likely(const NgramNodes& nodes) const;
  // Returns q(token | context) > 0.
  double probability(const NgramNodes& nodes, int64_t token) const;
  // Writes log q of every token, [V].
  void log_probabilities(const NgramNodes& nodes, std::span<float> out) const;

 private:
  double unigram_probability(int64_t token) const;
  // Returns (c + T q') / (c(h) + T) at one level, for the lower order's q'.
  static double interpolate(const NgramLevel& level, int64_t context, int64_t token, double lower);
  // Returns T / (c(h) + T), the weight of the lower order.
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
