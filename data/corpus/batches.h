// Deterministic batches of examples of similar length, by token budget. Their order can be resumed at any position.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/options.h"
#include "data/corpus/corpus.h"

namespace draftsmith::data {

// The budget counts all tokens that a step computes: rows times the longest source or target of the batch, padding
// included. Counting targets alone would let batches of long documents with short summaries exceed the memory.
struct BatchOptions {
  int64_t token_budget = 4096;  // a longer example forms a batch of its own
  int64_t pack_tokens = 0;      // joined rows are filled with examples up to this width; 0: one example per row
  int64_t max_rows = 1024;
  int64_t bucket_window = 100;  // examples sorted by length together, in batches
  uint64_t seed = 1;
  bool shuffle = true;
  static Fields<BatchOptions> fields();
};

// Position in a batch order: all state needed to continue from it.
struct BatchPosition {
  int64_t epoch = 0;
  int64_t batch = 0;  // within the epoch
};

// Layout of an example: source and target in separate rows (encoder-decoder), or one after the other in one row
// (decoder-only: prompt and continuation).
enum class RowForm { kSeparate, kJoined };

// Returns the number of tokens that a decoder-only model reads of an example: all but the last, which it only predicts.
// An empty source counts as one start token.
int64_t joined_length(const Corpus& corpus, int64_t example);
int64_t joined_length(std::span<const int32_t> source, std::span<const int32_t> target);

// Returns the row of each example when examples fill rows of `width` tokens one after the other. An example longer than
// `width` has its own row; width 0 gives every example its own.
std::vector<int64_t> packed_rows(std::span<const int64_t> lengths, int64_t width);

// Gives the indices of the examples of each batch. Each example is in exactly one batch of an epoch. Equal corpus,
// options and position give equal batches on every machine. Takes 4 bytes of memory an example and 16 a batch.
class BatchOrder {
 public:
  // The corpus must outlive this. Errors: UserError for an empty corpus or one of 2^32 examples and more, options out
  // of range, or packing of separate rows.
  BatchOrder(const Corpus& corpus, BatchOptions options, RowForm form = RowForm::kSeparate);
  // Returns the examples of the batch at `position` and advances it, at the end of an epoch to the next epoch.
  std::vector<int64_t> next(BatchPosition& position);
  int64_t batches(int64_t epoch);
  // Returns batches of the examples [first, last) alone, sorted by length, for passes in the corpus's order.
  std::vector<std::vector<int64_t>> of_range(int64_t first, int64_t last);

 private:
  // An example's index in a corpus, in as little memory as the largest corpora need.
  using Index = uint32_t;
  // The examples of a batch, in `order_`.
  struct Piece {
    size_t begin = 0, end = 0;
  };

  void build(int64_t epoch);
  std::vector<int64_t> examples_of(const Piece& piece) const;
  size_t window_end(size_t begin) const;
  void add_window(size_t begin, size_t end);
  void add_sorted_window(size_t begin, size_t end);
  void add_packed_window(size_t begin, size_t end);
  int64_t padded_length(int64_t example) const;
  const Corpus* corpus_;
  BatchOptions options_;
  RowForm form_;
  int64_t built_epoch_ = -1;
  std::vector<Index> order_;    // the examples, batch after batch
  std::vector<Piece> batches_;  // in the epoch's order
};

}  // namespace draftsmith::data
