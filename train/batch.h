// A micro-batch as tensors: the input of a model's forward pass and of an objective.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aten.h"
#include "data/corpus/corpus.h"
#include "model/transformer/language_model.h"

namespace draftsmith::train {

struct Batch {
  model::TokenBatch source;  // [B,S]; undefined for decoder-only models
  // [B,T]: the decoder start token, then all but the last target token. Decoder-only: the source, if there is one,
  // replaces the start token, and a row may pack several examples.
  model::TokenBatch decoder_input;
  at::Tensor labels;                  // int64 [P]: target tokens of all rows, padding left out, row after row
  at::Tensor positions;               // int64 [P]: where each label stands in the flattened [B*T]
  std::vector<int64_t> places;        // [P]: the same on the host
  std::vector<int64_t> label_counts;  // labels of each example, in the order of `labels`
  std::vector<int64_t> examples;      // [B]: indices in the corpus; empty when made from tokens
  int64_t label_count() const { return labels.size(0); }
  // Returns the number of each label's example in the batch, on the labels' device: int64 [P].
  at::Tensor sequences() const;
};

// Makes a batch of a corpus's examples on the model's device. Padding positions and prompts never reach the head or the
// loss. `pack_tokens` as in data::BatchOptions.
Batch make_batch(const data::Corpus& corpus, const std::vector<int64_t>& examples, const model::ModelInfo& model,
                 int64_t pack_tokens = 0);

struct ExampleTokens {
  std::span<const int32_t> source, target;
};
// Makes a batch of tokens that belong to no corpus.
Batch make_batch(std::span<const ExampleTokens> examples, const model::ModelInfo& model, int64_t pack_tokens = 0);

}  // namespace draftsmith::train
