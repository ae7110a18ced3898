#include "data/corpus/batches.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <tuple>

#include "base/random.h"
#include "base/util.h"

namespace draftsmith::data {
namespace {

// Shuffles by Fisher and Yates, with one random number per place.
template <class T>
void shuffle(std::vector<T>& items, const CounterRandom& random) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[static_cast<size_t>(random.below(i, i))]);
}

int64_t length(std::span<const int32_t> row) {
  return static_cast<int64_t>(row.size());
}

// A limit beyond any use: the window times another option still fits int64.
constexpr double kMostBatchTokens = 1LL << 31;
constexpr double kMostWindows = 1LL << 20;

constexpr int64_t kMostOrdered = std::numeric_limits<uint32_t>::max();

}  // namespace

Fields<BatchOptions> BatchOptions::fields() {
  return Fields<BatchOptions>("batch options")
      .add("token_budget", &BatchOptions::token_budget, Range{1, kMostBatchTokens}, Unit{"tokens"},
           "Maximum tokens of a batch, padding included: rows times its longest source or target. A longer example "
           "forms a batch of its own.")
      .add("pack_tokens", &BatchOptions::pack_tokens, Range{0, kMostBatchTokens}, Unit{"tokens"},
           "Decoder-only models: fill rows of this many tokens with examples, one after the other. Attention and "
           "positions do not cross examples. 0: one example per row, sorted by length.")
      .add("max_rows", &BatchOptions::max_rows, Range{1, kMostBatchTokens}, Unit{"rows"},
           "Maximum rows of a batch: examples, or with pack_tokens rows of several.")
      .add("bucket_window", &BatchOptions::bucket_window, Range{1, kMostWindows}, Unit{"batches"},
           "Examples sorted by length together, in batches. Larger values pad less, smaller values mix more.")
      .add("seed", &BatchOptions::seed, "Seed of the order of examples and batches.")
      .add("shuffle", &BatchOptions::shuffle,
           "Draw a new order each epoch. False: the corpus's order, with windows sorted by length.");
}

int64_t joined_length(std::span<const int32_t> source, std::span<const int32_t> target) {
  const int64_t labels = length(target);
  return std::max<int64_t>(1, source.empty() ? labels : length(source) + std::max<int64_t>(0, labels - 1));
}

int64_t joined_length(const Corpus& corpus, int64_t example) {
  return joined_length(corpus.source(example), corpus.target(example));
}

std::vector<int64_t> packed_rows(std::span<const int64_t> lengths, int64_t width) {
  std::vector<int64_t> rows;
  int64_t row = -1;
  int64_t filled = 0;
  for (const int64_t length : lengths) {
    if (row < 0 || filled + length > width) {
      ++row;
      filled = 0;
    }
    filled += length;
    rows.push_back(row);
  }
  return rows;
}

BatchOrder::BatchOrder(const Corpus& corpus, BatchOptions options, RowForm form)
    : corpus_(&corpus), options_(options), form_(form) {
  Problems problems;
  validate_options(options, "batches", problems);
  if (options.pack_tokens > 0 && form == RowForm::kSeparate) {
    problems.add({"batches.pack_tokens", "only rows of decoder-only models can be packed", "0",
                  std::to_string(options.pack_tokens), ""});
  }
  if (options.pack_tokens > options.token_budget) {
    problems.add({"batches.pack_tokens", "a packed row is larger than a batch",
                  "at most token_budget, " + std::to_string(options.token_budget), std::to_string(options.pack_tokens),
                  ""});
  }
  problems.throw_if_any();
  if (corpus.size() == 0) {
    throw UserError({corpus.file().string(), "no examples to make batches of", "", "", ""});
  }
  if (corpus.size() > kMostOrdered) {
    throw UserError({corpus.file().string(), "too many examples for an order of batches",
                     "at most " + std::to_string(kMostOrdered), std::to_string(corpus.size()),
                     "divide the corpus, and train on its parts one after the other"});
  }
}

std::vector<int64_t> BatchOrder::next(BatchPosition& position) {
  build(position.epoch);
  if (position.batch < 0 || position.batch >= static_cast<int64_t>(batches_.size())) {
    throw std::logic_error("batch position outside its epoch");
  }
  std::vector<int64_t> batch = examples_of(batches_[static_cast<size_t>(position.batch)]);
  if (++position.batch == static_cast<int64_t>(batches_.size())) position = {.epoch = position.epoch + 1, .batch = 0};
  return batch;
}

int64_t BatchOrder::batches(int64_t epoch) {
  build(epoch);
  return static_cast<int64_t>(batches_.size());
}

std::vector<std::vector<int64_t>> BatchOrder::of_range(int64_t first, int64_t last) {
  order_.resize(static_cast<size_t>(last - first));
  std::iota(order_.begin(), order_.end(), static_cast<Index>(first));
  batches_.clear();
  built_epoch_ = -1;
  add_window(0, order_.size());
  return from_each(batches_, [&](const Piece& piece) { return examples_of(piece); });
}

std::vector<int64_t> BatchOrder::examples_of(const Piece& piece) const {
  const std::span<const Index> examples = std::span(order_).subspan(piece.begin, piece.end - piece.begin);
  return {examples.begin(), examples.end()};
}

int64_t BatchOrder::padded_length(int64_t example) const {
  if (form_ == RowForm::kJoined) return joined_length(*corpus_, example);
  return std::max({int64_t{1}, length(corpus_->source(example)), length(corpus_->target(example))});
}

// Cuts the shuffled examples into windows, sorts each window by length, cuts it into batches and shuffles the batches.
void BatchOrder::build(int64_t epoch) {
  if (epoch == built_epoch_) return;
  order_.resize(static_cast<size_t>(corpus_->size()));
  std::iota(order_.begin(), order_.end(), Index{0});
  const auto stream = static_cast<uint64_t>(epoch) * 2;
  if (options_.shuffle) shuffle(order_, CounterRandom(options_.seed ^ stream_of("batches"), stream));
  batches_.clear();
  for (size_t begin = 0; begin < order_.size();) {
    const size_t end = window_end(begin);
    add_window(begin, end);
    begin = end;
  }
  if (options_.shuffle) shuffle(batches_, CounterRandom(options_.seed ^ stream_of("batches"), stream + 1));
  built_epoch_ = epoch;
}

size_t BatchOrder::window_end(size_t begin) const {
  int64_t tokens = 0;
  size_t end = begin;
  const int64_t most_rows = options_.bucket_window * options_.max_rows;
  while (end < order_.size() && static_cast<int64_t>(end - begin) < most_rows &&
         tokens < options_.bucket_window * options_.token_budget) {
    tokens += padded_length(order_[end++]);
  }
  return end;
}

void BatchOrder::add_window(size_t begin, size_t end) {
  return options_.pack_tokens > 0 ? add_packed_window(begin, end) : add_sorted_window(begin, end);
}

// Adds batches of packed rows in the window's order. A row counts with its full width even if it is not full.
void BatchOrder::add_packed_window(size_t begin, size_t end) {
  Piece batch{begin, begin};
  int64_t rows = 0;
  int64_t filled = 0;
  int64_t width = options_.pack_tokens;
  for (; batch.end < end; ++batch.end) {
    const int64_t added = padded_length(order_[batch.end]);
    const bool fits = rows > 0 && filled + added <= options_.pack_tokens;
    const bool full = rows + 1 > options_.max_rows || (rows + 1) * std::max(width, added) > options_.token_budget;
    if (batch.begin < batch.end && !fits && full) {
      batches_.push_back(batch);
      batch.begin = batch.end;
      rows = 0;
      width = options_.pack_tokens;
    }
    filled = fits ? filled + added : added;
    rows += fits ? 0 : 1;
    width = std::max(width, filled);
  }
  if (batch.begin < batch.end) batches_.push_back(batch);
}

void BatchOrder::add_sorted_window(size_t begin, size_t end) {
  const auto key = [this](Index example) {
    return std::tuple(padded_length(example), length(corpus_->target(example)), length(corpus_->source(example)));
  };
  if (options_.bucket_window > 1) {
    const std::span<Index> window = std::span(order_).subspan(begin, end - begin);
    std::stable_sort(window.begin(), window.end(), [&](Index a, Index b) { return key(a) < key(b); });
  }
  Piece batch{begin, begin};
  int64_t longest = 0;
  for (; batch.end < end; ++batch.end) {
    const int64_t added = padded_length(order_[batch.end]);
    const int64_t rows = static_cast<int64_t>(batch.end - batch.begin) + 1;
    if (rows > 1 && (rows > options_.max_rows || rows * std::max(longest, added) > options_.token_budget)) {
      batches_.push_back(batch);
      batch.begin = batch.end;
      longest = 0;
    }
    longest = std::max(longest, added);
  }
  if (batch.begin < batch.end) batches_.push_back(batch);
}

}  // namespace draftsmith::data
