// Deterministic bucketed batches by token budget, in an order that can be resumed at any position.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/options.h"
#include "data/corpus/corpus.h"

namespace draftsmith::data {

// The budget counts what a step computes on: rows times the longest source or target of the batch, padding included
// (counting targets alone would let a batch of long documents with short summaries outgrow memory).
struct BatchOptions {
  int64_t token_budget = 4096;  // a longer example is a batch alone
  int64_t pack_tokens = 0;      // joined rows are filled with examples up to this width; 0: an example a row
  int64_t max_rows = 1024;
  int64_t bucket_window = 100;  // batches' worth of examples that are sorted by length together
  uint64_t seed = 1;
  bool shuffle = true;
  static Fields<BatchOptions> fields();
};

// Where a batch order stands: everything needed to go on from there.
struct BatchPosition {
  int64_t epoch = 0;
  int64_t batch = 0;  // within the epoch
};

// Where an example's tokens lie: source and target in rows of their own (encoder-decoder), or one after the other in
// one row (decoder-only: prompt and continuation).
enum class RowForm { kSeparate, kJoined };

// Tokens that a decoder-only model is given of an example: all but the last, which it only predicts; a start token
// stands in for an empty source.
int64_t joined_length(const Corpus& corpus, int64_t example);
int64_t joined_length(std::span<const int32_t> source, std::span<const int32_t> target);

// Row of each example when they are laid one after the other into rows of `width` tokens; a longer one, or width 0,
// gives a row to each.
std::vector<int64_t> packed_rows(std::span<const int64_t> lengths, int64_t width);

// Indices of the examples of each batch. Same corpus, options and position: same batches, on every machine. Every
// example is in exactly one batch of an epoch.
class BatchOrder {
 public:
  // The corpus must outlive the order. Errors: UserError for an empty corpus, options out of range, or packing of
  // separate rows.
  BatchOrder(const Corpus& corpus, BatchOptions options, RowForm form = RowForm::kSeparate);
  // Examples of the batch at `position`; advances it, over the epoch's end into the next.
  std::vector<int64_t> next(BatchPosition& position);
  int64_t batches(int64_t epoch);
  // The examples [first, last) alone, sorted by length into batches: for passes over the corpus in its own order.
  std::vector<std::vector<int64_t>> of_range(int64_t first, int64_t last);

 private:
  void build(int64_t epoch);
  size_t window_end(const std::vector<int64_t>& order, size_t begin) const;
  void add_window(std::span<int64_t> window);
  void add_packed_window(std::span<const int64_t> window);
  int64_t padded_length(int64_t example) const;
  const Corpus* corpus_;
  BatchOptions options_;
  RowForm form_;
  int64_t built_epoch_ = -1;
  std::vector<std::vector<int64_t>> batches_;
};

// Right-padded rows of a batch, host memory, ready to become tensors.
struct PaddedRows {
  std::vector<int64_t> tokens;   // [B,L] row-major, padded with pad
  std::vector<int64_t> lengths;  // [B]
  int64_t rows = 0;
  int64_t width = 0;  // L
};

PaddedRows pad_rows(std::span<const std::span<const int32_t>> rows, int64_t pad);
PaddedRows pad_sources(const Corpus& corpus, const std::vector<int64_t>& examples, int64_t pad);
PaddedRows pad_targets(const Corpus& corpus, const std::vector<int64_t>& examples, int64_t pad);

}  // namespace draftsmith::data
