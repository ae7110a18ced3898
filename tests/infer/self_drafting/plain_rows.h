// Rows that are decoded by a decoder of one's own, without a Generator, so that tests see its decode state.
#pragma once

#include <functional>
#include <vector>

#include "infer/loop/decode_stats.h"
#include "infer/loop/rows.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::infer::testing {

struct PlainRows {
  std::vector<std::vector<int64_t>> sources;  // decoder-only: prompts
  int64_t limit = 12;
  int64_t capacity = 0;  // 0: what the rows need
};

using Decoder = std::function<void(RowBatch&, PhaseTimer&)>;

// A batch of all rows at the point where decoding begins.
inline RowBatch begin_rows(model::TransformerModel& target, const PlainRows& wanted, size_t first, size_t count) {
  RowBatch batch;
  const bool encodes = target.info().encoder_decoder;
  std::vector<int64_t> lengths;
  int64_t width = 1, capacity = wanted.capacity;
  for (size_t line = first; line < first + count; ++line) {
    const auto& source = wanted.sources[line];
    Row row;
    row.line = row.output = line;
    if (encodes) row.source = source;
    row.tokens = encodes ? std::vector<int64_t>{target.info().decoder_start} : source;
    row.prefix = row.length();
    row.limit = wanted.limit;
    row.random = RowRandom(3, line, 0);
    capacity = std::max(capacity, row.prefix + row.limit);
    lengths.push_back(std::ssize(source));
    width = std::max(width, lengths.back());
    batch.rows.push_back(std::move(row));
  }
  model::EncoderStates encoder;
  if (encodes) {
    const at::Tensor tokens = at::zeros({std::ssize(lengths), width}, at::kLong);
    for (size_t b = 0; b < count; ++b) {
      for (size_t i = 0; i < wanted.sources[first + b].size(); ++i) {
        tokens[static_cast<int64_t>(b)][static_cast<int64_t>(i)] = wanted.sources[first + b][i];
      }
    }
    encoder = target.encode({tokens, lengths});
  }
  batch.state = prefill(target, encoder, batch.rows, {capacity, 1}).state;
  return batch;
}

// Decodes all rows in batches; rows in the order of the sources.
inline std::vector<Row> decode_rows(model::TransformerModel& target, const PlainRows& wanted, size_t batch_size,
                                    const Decoder& decode) {
  std::vector<Row> rows(wanted.sources.size());
  for (size_t first = 0; first < rows.size(); first += batch_size) {
    RowBatch batch = begin_rows(target, wanted, first, std::min(batch_size, rows.size() - first));
    PhaseTimer timer(at::kCPU);
    decode(batch, timer);
    for (Row& row : batch.finished) rows[row.output] = std::move(row);
  }
  return rows;
}

inline std::vector<std::vector<int64_t>> tokens_of(const std::vector<Row>& rows) {
  std::vector<std::vector<int64_t>> tokens;
  for (const Row& row : rows) tokens.push_back(row.tokens);
  return tokens;
}

}  // namespace draftsmith::infer::testing
