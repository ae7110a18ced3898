// N-gram table of the drafter `ngram`: counts (data/ngrams/ngram_counts.h) of the target side of a corpus, in an HDF5
// file whose arrays are mapped into memory.
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
#include <string>

#include "base/files.h"
#include "base/options.h"
#include "data/corpus/prepare.h"
#include "data/ngrams/ngram_counts.h"

namespace draftsmith::data {

struct NgramInfo {
  static constexpr int64_t kFormatVersion = 1;
  std::string tokenizer_hash{};
  int64_t vocabulary = 0;
  int64_t order = 3;
  int64_t examples = 0;
  int64_t target_tokens = 0;  // counted
  std::map<std::string, std::string> provenance{};
};

struct NgramOptions {
  int64_t order = 3;
  int64_t memory_mb = 512;
  static Fields<NgramOptions> fields();
};

struct NgramReport {
  int64_t examples = 0;
  int64_t target_tokens = 0;
  int64_t bigrams = 0;   // distinct
  int64_t trigrams = 0;  // distinct
  std::string text() const;
};

// Counts the target side of a corpus and writes the table. Uses `memory_mb` of memory for sorting and 16 bytes for each
// id of the vocabulary. N-grams that do not fit are sorted on disk beside `out`, 16 bytes for each distinct n-gram of a
// part. `progress` receives the examples read. Errors: UserError for a damaged corpus, and beyond the limits of packed
// keys and counts: a vocabulary of 2^21 - 2 ids and 2^31 - 1 target tokens.
NgramReport build_ngram_table(const std::filesystem::path& corpus, const NgramOptions& options,
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

// Returns whether a file is an n-gram table by its attribute `format`.
bool is_ngram_table(const std::filesystem::path& file);

}  // namespace draftsmith::data
