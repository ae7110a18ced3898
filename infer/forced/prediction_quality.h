// How well a model predicts the tokens of given texts, teacher-forced: accuracy and cross entropy (methods.md §3; Nair
// et al. 2024, Table 1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aten.h"

namespace draftsmith::infer {

struct PredictionQuality {
  double accuracy = 0;       // share of tokens that the model finds most likely
  double cross_entropy = 0;  // nats a token at temperature 1; infinite where one was impossible, NaN without logits
};

// The tokens that stand at some positions of each row.
struct ForcedLabels {
  at::Tensor ids;      // int64 [B,L]
  at::Tensor counted;  // bool [B,L]: false beyond a row's end
};

// On the host: outputs[b][first[b] .. first[b] + valid[b]) in row b of `width` places.
ForcedLabels labels_of(std::span<const std::vector<int64_t>> outputs, std::span<const int64_t> first,
                       std::span<const int64_t> valid, int64_t width);

class QualitySums {
 public:
  // Adds the counted positions of logits [B,L,V], whose most likely ids are `choice` [B,L]; labels on their device. A
  // label that the model has no id for is impossible to it.
  void add(const at::Tensor& logits, const at::Tensor& choice, const ForcedLabels& labels);
  // Adds a position of a drafter without logits.
  void add(bool correct);
  // NaN without positions.
  PredictionQuality mean() const;

 private:
  int64_t correct_ = 0;
  double nats_ = 0;
  int64_t positions_ = 0;
};

}  // namespace draftsmith::infer
