// One micro-batch as tensors: what a model's forward and an objective read.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "data/corpus.h"
#include "model/language_model.h"

namespace draftsmith::train {

struct Batch {
  model::TokenBatch source;         // [B,S]
  model::TokenBatch decoder_input;  // [B,T]: decoder start token, then all but the last target token
  at::Tensor labels;                // int64 [P]: target tokens of all rows, padding left out, row after row
  at::Tensor positions;             // int64 [P]: where each label stands in the flattened [B*T]
  std::vector<int64_t> examples;    // [B]: indices in the corpus
  int64_t label_count() const { return labels.size(0); }
};

// The examples of a corpus on the model's device. Padding positions never reach the head or the loss.
Batch make_batch(const data::Corpus& corpus, const std::vector<int64_t>& examples, const model::ModelInfo& model);

}  // namespace draftsmith::train
