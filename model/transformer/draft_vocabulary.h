// A drafter with a pruned vocabulary: its embedding and head have rows for some of its target's token ids only. The
// model still takes and returns the target's ids; VocabularyRows converts them at the embedding and after the head.
// Tokens without a row are embedded as a stand-in and get no probability. model/files/draft_vocabulary_files.h stores
// the ids.
#pragma once

#include "base/aten.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// The rows of ids in a model's embedding and head: the ids themselves, or the rows of a pruned vocabulary.
class VocabularyRows {
 public:
  VocabularyRows() = default;
  VocabularyRows(const TransformerConfig& config, at::Device device);

  bool pruned() const { return ids_.defined(); }
  // Returns the rows of tokens int64 [...]; the stand-in's row for tokens without one.
  at::Tensor of(const at::Tensor& tokens) const;
  // Returns the row of one token id below V, on the CPU.
  int64_t row_of(int64_t token) const { return pruned() ? row_of_.const_data_ptr<int64_t>()[token] : token; }
  // Returns whether tokens int64 [...] have their own row. bool [...]
  at::Tensor has(const at::Tensor& tokens) const;
  // Returns values of the rows [...,rows] as values of all ids [...,V], with `elsewhere` for ids without a row.
  // Differentiable.
  at::Tensor spread(const at::Tensor& values, double elsewhere) const;

 private:
  int64_t vocabulary_ = 0;
  at::Tensor ids_;     // [rows]; undefined: all ids have rows
  at::Tensor row_of_;  // [V]
};

}  // namespace draftsmith::model
