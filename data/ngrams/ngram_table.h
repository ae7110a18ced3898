// N-gram table of the drafter `ngram`: counts of the target side of a corpus, in an HDF5 file whose arrays are mapped.
//
//   /unigrams/counts  int32 [V]
//   /bigrams/children int64 [V+2], /bigrams/totals, /bigrams/best int32 [V+1]      contexts: the tokens, the beginning
//   /bigrams/tokens,  /bigrams/counts int32 [bigrams]                              (orders 2 and 3)
//   /trigrams/children int64 [bigrams+1], /trigrams/totals, /trigrams/best int32 [bigrams]   contexts: the bigrams
//   /trigrams/tokens, /trigrams/counts int32 [trigrams]                            (order 3)
//   attributes of /: format "draftsmith ngrams", format_version, tokenizer_hash, vocabulary, order, examples,
//                    target_tokens; attributes of /provenance: the corpus's, and its path
//
// The arrays are contiguous and uncompressed, because chunked datasets cannot be mapped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/options.h"
#include "data/corpus/corpus.h"
#include "data/hdf5/hdf5.h"

namespace draftsmith::data {

inline constexpr Hdf5Format kNgramFormat{"draftsmith ngrams", 1, "an n-gram table", "a stage of kind ngram"};

// The counts of one order: C contexts and N pairs of context and next token.
struct NgramLevel {
  std::span<const int64_t> children;  // [C+1] context c is followed by the tokens [children[c], children[c+1])
  std::span<const int32_t> totals;    // [C] c(h)
  std::span<const int32_t> best;      // [C] the token of the largest q(w | h), the lowest among equals
  std::span<const int32_t> tokens;    // [N] ascending for each context
  std::span<const int32_t> counts;    // [N] c(h w)
};

// Returns the index of a token behind a context; -1 if it was not seen there.
int64_t find_ngram(const NgramLevel& level, int64_t context, int64_t token);

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

// N-gram model over counts in plain arrays, orders 1 to 3, with interpolated Witten-Bell smoothing (Witten and Bell
// 1991; Chen and Goodman 1999, §2.5): every context has a true distribution over the vocabulary.
//
//   q(w)      = (c(w) + T / V) / (C + T)                       1 / V if nothing was counted
//   q(w | h)  = (c(h w) + T(h) q(w | h')) / (c(h) + T(h))      q(w | h') for a context h that was not seen
//
// c(h w): how often w follows h; c(h) = sum_w c(h w); T(h): how many different w follow h; h' is h without its oldest
// token; C and T are the values of the empty context, V is the vocabulary. EOS is a token like any other. The context
// of a row's first token is (beginning), or its prompt's last token; its second token's has the first token, too.
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

// Tokens are packed into 21 bits. One more context than there are ids is the beginning of rows.
inline constexpr int64_t kMostNgramIds = (int64_t{1} << 21) - 2;

struct NgramInfo {
  std::string tokenizer_hash{};
  int64_t vocabulary = 0;
  int64_t order = 3;
  int64_t examples = 0;
  int64_t target_tokens = 0;  // counted
  std::map<std::string, std::string> provenance{};
};

struct NgramOptions {
  int64_t order = 3;
  static Fields<NgramOptions> fields();
};

// Counts the target side of a corpus, writes the table and returns its counts as text. Takes 8 bytes of memory for each
// target token, 12 for each different bigram and trigram, and 16 for each id of the vocabulary. `progress` receives the
// examples read. Errors: UserError for a damaged corpus, and beyond the limits of packed keys and counts: a vocabulary
// of 2^21 - 2 ids and 2^31 - 1 target tokens.
std::string build_ngram_table(const std::filesystem::path& corpus, const NgramOptions& options,
                              const std::filesystem::path& out, const ProgressCallback& progress = {});

class NgramTable {
 public:
  // Maps the file and checks all values. Errors: UserError that names file and dataset.
  explicit NgramTable(const std::filesystem::path& file);
  const NgramInfo& info() const { return info_; }
  const NgramCounts& counts() const { return counts_; }
  const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
  MappedFile mapping_;
  NgramInfo info_;
  NgramCounts counts_;
};

// Returns a description of several lines for `draftsmith inspect`.
std::string describe_ngram_table(const NgramTable& table);

}  // namespace draftsmith::data
